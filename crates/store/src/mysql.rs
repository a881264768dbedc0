//! MySQL.
