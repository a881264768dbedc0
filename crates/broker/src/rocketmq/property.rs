//! User properties with a meaning of their own, beside those of [`crate::envelope`].

/// The event's id, where it cannot be the message id.
pub(super) const EVENT_ID: &str = "consign-event-id";
/// The event's type, where it cannot be the tag.
pub(super) const EVENT_TYPE: &str = "consign-event-type";
/// `1` when the payload is empty: a proxy takes no empty body, so that a placeholder stands for it.
pub(super) const EMPTY: &str = "consign-empty";

/// All of them. A producer's header of such a name does not travel: consumers rely on what consign wrote.
pub(super) const ALL: [&str; 3] = [EVENT_ID, EVENT_TYPE, EMPTY];

/// Whether proxy or broker give this name a meaning of its own: `MessageConst` of apache/rocketmq. Not all of these
/// names are refused by a proxy; some, like a sharding key, would silently make another message of it.
pub(super) fn is_reserved(name: &str) -> bool {
    // `__SHARDINGKEY`, `__BORNHOST`, `__transactionId__`, `__CRC32#`, `__RMQ.TRANSIENT.…`.
    name.starts_with("__") || RESERVED.contains(&name)
}

const RESERVED: [&str; 59] = [
    "1ST_POP_TIME",
    "ARRIVE_TIME",
    "BORN_TIMESTAMP",
    "BUYER_ID",
    "CHECK_IMMUNITY_TIME_IN_SECONDS",
    "CLUSTER",
    "CONSUME_START_TIME",
    "CORRECTION_FLAG",
    "CORRELATION_ID",
    "DELAY",
    "DLQ_ORIGIN_MESSAGE_ID",
    "DLQ_ORIGIN_TOPIC",
    "DUP_INFO",
    "EXTEND_UNIQ_INFO",
    "INNER_BASE",
    "INNER_MULTI_DISPATCH",
    "INNER_MULTI_QUEUE_OFFSET",
    "INNER_NUM",
    "INSTANCE_ID",
    "KEYS",
    "MAX_OFFSET",
    "MAX_RECONSUME_TIMES",
    "MIN_OFFSET",
    "MQ2_FLAG",
    "MSG_REGION",
    "MSG_TYPE",
    "ORIGIN_MESSAGE_ID",
    "PGROUP",
    "POP_CK",
    "POP_CK_OFFSET",
    "PROPERTY_FORWARD_QUEUE_ID",
    "PUSH_REPLY_TIME",
    "REAL_QID",
    "REAL_TOPIC",
    "RECONSUME_TIME",
    "REDIRECT",
    "REPLY_TO_CLIENT",
    "RETRY_TOPIC",
    "TAGS",
    "TIMER_DELAY_LEVEL",
    "TIMER_DELAY_MS",
    "TIMER_DELAY_SEC",
    "TIMER_DELIVER_MS",
    "TIMER_DEL_UNIQKEY",
    "TIMER_DEQUEUE_MS",
    "TIMER_ENQUEUE_MS",
    "TIMER_OUT_MS",
    "TIMER_ROLL_TIMES",
    "TRACE_CONTEXT",
    "TRACE_ON",
    "TRANSACTION_CHECK_TIMES",
    "TRANSFER_FLAG",
    "TRAN_MSG",
    "TRAN_PREPARED_QUEUE_OFFSET",
    "TTL",
    "UNIQ_KEY",
    "WAIT",
    "_SYS_MSG_PRIORITY_",
    "propertiesString",
];
