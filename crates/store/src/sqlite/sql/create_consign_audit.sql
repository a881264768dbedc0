-- Purpose: what people did about events and deliveries, and who; written in the transaction that did it.
CREATE TABLE IF NOT EXISTS "consign_audit" (
    "id" INTEGER PRIMARY KEY AUTOINCREMENT,
    "at" TEXT NOT NULL,
    "actor" VARCHAR(128) NOT NULL,
    "action" VARCHAR(64) NOT NULL,
    "subject" VARCHAR(255) NOT NULL,
    "detail" VARCHAR(1024) NULL
);
