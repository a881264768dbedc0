//! Purging markers beyond their retention.

use std::time::Duration;

use consign_core::ports::StoreError;
use consign_store::record::{PurgeMarkers, PurgeReport};

use crate::sqlite::file::File;

const DAY: Duration = Duration::from_hours(24);

fn beyond_a_week(page: u32) -> PurgeMarkers {
    PurgeMarkers { retention: 7 * DAY, page, limit: None }
}

/// Ten old markers of two consumers between ten young ones; one without a date, one with a number for a date.
async fn filled() -> File {
    let file = File::migrated().await;
    file.run(
        "DROP TABLE consumed_operation;
         CREATE TABLE consumed_operation (consumer_name VARCHAR(64), business_key VARCHAR(128), event_id VARCHAR(64),
             amount BIGINT, applied_at TEXT, PRIMARY KEY (consumer_name, business_key));
         WITH RECURSIVE at(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM at WHERE n < 20)
         INSERT INTO consumed_operation (consumer_name, business_key, applied_at)
         SELECT CASE WHEN n <= 7 THEN 'a' ELSE 'b' END, 'key-' || (n * 7 % 20),
             strftime('%Y-%m-%d %H:%M:%f000', 'now', CASE WHEN n % 2 THEN '-8 days' ELSE '-6 days' END) FROM at;
         INSERT INTO consumed_operation (consumer_name, business_key, applied_at) VALUES
             ('a', 'undated', NULL), ('b', 'other', '1700000000'), ('', '', '2020-01-01 00:00:00');",
    )
    .await;
    file
}

#[tokio::test]
async fn only_old_markers_go_whatever_the_page() {
    for page in [1, 2, 3, 7, 22, 23, 24, 1000] {
        let file = filled().await;

        let report = file.inbox().await.purge_markers(&beyond_a_week(page)).await.unwrap();

        assert_eq!((report.examined, report.purged, report.undated), (23, 11, 1), "page {page}");
        assert!(report.finished && report.pages <= 11 && report.pages >= 1, "{report:?}");
        let young = "SELECT COUNT(*) FROM consumed_operation WHERE applied_at > \
                     strftime('%Y-%m-%d %H:%M:%f000', 'now', '-7 days')";
        assert_eq!(file.number(young).await, 10);
        assert_eq!(file.number("SELECT COUNT(*) FROM consumed_operation").await, 12);
    }
}

#[tokio::test]
async fn a_limit_ends_the_purge_and_the_next_one_goes_on() {
    for page in [1, 4, 100] {
        let file = filled().await;
        let inbox = file.inbox().await;
        let purge = PurgeMarkers { limit: Some(4), ..beyond_a_week(page) };

        let mut purged = Vec::new();
        for _ in 0..3 {
            let report = inbox.purge_markers(&purge).await.unwrap();
            assert_eq!(report.finished, report.purged < 4, "{report:?}");
            purged.push(report.purged);
        }

        assert_eq!(purged, [4, 4, 3], "page {page}");
    }
}

#[tokio::test]
async fn an_empty_table_and_one_without_dates() {
    let (migrated, contract) = (File::migrated().await, File::contract().await);
    let report = migrated.inbox().await.purge_markers(&beyond_a_week(10)).await;
    assert_eq!(report, Ok(PurgeReport { finished: true, ..PurgeReport::default() }));

    let error = contract.inbox().await.purge_markers(&beyond_a_week(10)).await.unwrap_err();
    assert!(matches!(&error, StoreError::Schema(text) if text.contains("applied_at")), "{error}");
}
