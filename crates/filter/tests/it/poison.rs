//! Redis holds what nobody expects: hints are wrong at worst, and nothing fails.

use consign_core::filter::{Hint, RepeatFilter};
use consign_filter::{FilterTotals, RedisFilter};
use redis::Cmd;

use crate::operations::{hint, options, points, remember};
use crate::server::{connect, keys, shared};

/// B39 (CERT-Polska/Artemis#2677 and others), turned against the hints: what is under a key is whatever somebody put
/// there.
#[tokio::test]
async fn wrong_types_and_foreign_values_are_unknown_and_are_replaced() {
    let digest = "0".repeat(64);
    let long = vec![b'0'; 1_000_000];
    let poisons: [(&str, Hint, &[&[u8]]); 11] = [
        ("LPUSH", Hint::Unknown, &[b"a"]),
        ("SADD", Hint::Unknown, &[b"a"]),
        ("HSET", Hint::Unknown, &[b"field", b"value"]),
        ("ZADD", Hint::Unknown, &[b"1", b"a"]),
        ("XADD", Hint::Unknown, &[b"*", b"field", b"value"]),
        ("SET", Hint::Unknown, &[b""]),
        ("SET", Hint::Unknown, &[b"1"]),
        ("SET", Hint::Unknown, &[b"\xff\xfe\x00"]),
        ("SET", Hint::Unknown, &[&[b'G'; 64]]),
        ("SET", Hint::Unknown, &[&long]),
        ("SET", Hint::Contradiction, &[digest.as_bytes()]),
    ];
    let options = options(&shared());
    let filter = RedisFilter::new(options.clone()).unwrap();
    let mut connection = connect(&shared()).await;
    let operation = points("order-1", "1");
    remember(&filter, std::slice::from_ref(&operation)).await;
    let [key] = keys(&mut connection, &options.prefix).await.try_into().unwrap();

    for (command, expected, arguments) in poisons {
        let () = Cmd::del(&key).query_async(&mut connection).await.unwrap();
        let mut poison = redis::cmd(command);
        poison.arg(&key);
        for argument in arguments {
            poison.arg(*argument);
        }
        let _: redis::Value = poison.query_async(&mut connection).await.unwrap();

        assert_eq!(hint(&filter, &operation).await, expected, "{command}");
        remember(&filter, std::slice::from_ref(&operation)).await;
        assert_eq!(hint(&filter, &operation).await, Hint::Repeat, "after {command}");
    }

    let totals = FilterTotals { hits: 11, misses: 10, contradictions: 1, errors: 0, skipped: 0 };
    assert_eq!(filter.totals(), totals);
}

#[tokio::test]
async fn one_poisoned_key_spoils_no_other_hint_of_the_batch() {
    let options = options(&shared());
    let filter = RedisFilter::new(options.clone()).unwrap();
    let mut connection = connect(&shared()).await;
    let [first, poisoned, last] = [points("order-1", "1"), points("order-2", "2"), points("order-3", "3")];
    remember(&filter, std::slice::from_ref(&poisoned)).await;
    let [key] = keys(&mut connection, &options.prefix).await.try_into().unwrap();
    remember(&filter, &[first.clone(), last.clone()]).await;

    let () = Cmd::del(&key).query_async(&mut connection).await.unwrap();
    let _: i64 = redis::cmd("LPUSH").arg(&key).arg("a").query_async(&mut connection).await.unwrap();

    let hints = filter.hints(&[&first, &poisoned, &last]).await;
    assert_eq!(hints, [Hint::Repeat, Hint::Unknown, Hint::Repeat]);
}
