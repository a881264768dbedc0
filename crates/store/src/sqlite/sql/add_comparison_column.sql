-- Purpose: adds one column that a consumer compares by, nullable, with the type its binding has.
-- Locks: the file, for a moment.
-- Why: a decimal is kept as text, since SQLite would make it a float.
ALTER TABLE "consumed_operation" ADD COLUMN "comparison_column"
    BIGINT NULL -- ? integer
-- ? decimal: TEXT NULL
-- ? string: TEXT NULL
-- ? boolean: BOOLEAN NULL
-- ? json: TEXT NULL
-- ? timestamp: TEXT NULL
;
