//! The keyed hash that RocketMQ's access control signs requests with.

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

/// HMAC-SHA1 of `content` under `key`.
pub(crate) fn hmac_sha1(key: &[u8], content: &[u8]) -> [u8; 20] {
    let mut hash = Hmac::<Sha1>::new_from_slice(key).expect("HMAC takes keys of any length");
    hash.update(content);
    hash.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::hmac_sha1;

    /// Test case 2 of RFC 2202.
    #[test]
    fn the_hash_is_the_one_of_the_standard() {
        let hash = hmac_sha1(b"Jefe", b"what do ya want for nothing?");

        let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
    }
}
