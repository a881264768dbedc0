use bytes::BufMut;

use super::*;

/// The bytes of a message as a broker writes them.
pub(in crate::admin) struct Written<'a> {
    pub topic: &'a str,
    pub properties: &'a [(&'a str, &'a str)],
    pub body: &'a [u8],
    pub flags: u32,
    pub queue_offset: u64,
}

impl Written<'_> {
    pub(in crate::admin) fn bytes(&self) -> Vec<u8> {
        let host = |v6: bool, out: &mut Vec<u8>| {
            if v6 {
                out.put_u128(1);
            } else {
                out.put_u32(0x7f00_0001);
            }
            out.put_u32(10911);
        };
        let mut out = Vec::new();
        out.put_u32(0);
        out.put_u32(if self.topic.len() > 127 { MAGIC_LONG_TOPIC } else { MAGIC });
        out.put_u32(77);
        out.put_u32(3);
        out.put_u32(0);
        out.put_u64(self.queue_offset);
        out.put_u64(4096);
        out.put_u32(self.flags);
        out.put_u64(1_700_000_000_000);
        host(self.flags & BORN_HOST_V6 != 0, &mut out);
        out.put_u64(1_700_000_000_001);
        host(self.flags & STORE_HOST_V6 != 0, &mut out);
        out.put_u32(0);
        out.put_u64(0);
        out.put_u32(u32::try_from(self.body.len()).unwrap());
        out.put_slice(self.body);
        if self.topic.len() > 127 {
            out.put_u16(u16::try_from(self.topic.len()).unwrap());
        } else {
            out.put_u8(u8::try_from(self.topic.len()).unwrap());
        }
        out.put_slice(self.topic.as_bytes());
        let pairs: Vec<String> =
            self.properties.iter().map(|(name, value)| format!("{name}\u{1}{value}\u{2}")).collect();
        let properties = pairs.concat();
        out.put_u16(u16::try_from(properties.len()).unwrap());
        out.put_slice(properties.as_bytes());
        let length = u32::try_from(out.len()).unwrap();
        out[..4].copy_from_slice(&length.to_be_bytes());
        out
    }
}

fn discarded() -> Written<'static> {
    Written {
        topic: "TRANS_CHECK_MAX_TIME_TOPIC",
        properties: &[
            ("UNIQ_KEY", "01AB"),
            ("REAL_TOPIC", "points"),
            ("TRANSACTION_CHECK_TIMES", "5"),
            ("PGROUP", "points"),
            ("KEYS", "k1 k2"),
            ("colour", "red"),
        ],
        body: b"{}",
        flags: 0,
        queue_offset: 9,
    }
}

#[test]
fn a_discarded_half_message_tells_its_id_topic_and_checks() {
    let bytes = [discarded().bytes(), discarded().bytes()].concat();

    let messages = StoredMessage::decode_all(bytes.into()).unwrap();

    assert_eq!(messages.len(), 2);
    let message = &messages[0];
    assert_eq!(message.topic, DISCARDED);
    assert_eq!(message.message_id(), Some("01AB"));
    assert_eq!(message.real_topic(), Some("points"));
    assert_eq!(message.producer_group(), Some("points"));
    assert_eq!(message.checks(), 5);
    assert_eq!(message.keys().collect::<Vec<_>>(), ["k1", "k2"]);
    assert_eq!(message.user_properties().collect::<Vec<_>>(), [("colour", "red")]);
    assert_eq!(&message.body[..], b"{}");
    assert_eq!((message.queue_id, message.queue_offset, message.log_offset), (3, 9, 4096));
    assert_eq!(message.born_at, SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000));
    assert_eq!(message.copy_id(), "7F00000100002A9F0000000000001000");
    assert!(!message.compressed);
}

const DISCARDED: &str = crate::admin::DISCARDED_TOPIC;

#[test]
fn names_are_found_only_while_their_list_is_sorted() {
    assert!(SYSTEM_PROPERTIES.is_sorted());
}

#[test]
fn long_topics_addresses_of_version_six_and_compression_are_read() {
    let topic = "t".repeat(200);
    let written = Written {
        topic: &topic,
        properties: &[("TAGS", "paid")],
        flags: BORN_HOST_V6 | STORE_HOST_V6 | COMPRESSED,
        ..discarded()
    };

    let messages = StoredMessage::decode_all(written.bytes().into()).unwrap();

    assert_eq!(messages[0].topic, topic);
    assert_eq!(messages[0].tag(), Some("paid"));
    assert_eq!(messages[0].store_host.to_string(), "[::1]:10911");
    assert_eq!(messages[0].copy_id().len(), 56);
    assert!(messages[0].compressed);
}

#[test]
fn no_cut_or_changed_byte_makes_the_reader_panic() {
    let whole = discarded().bytes();
    for length in 0..whole.len() {
        let cut = Bytes::copy_from_slice(&whole[..length]);
        assert_eq!(StoredMessage::decode_all(cut).is_ok(), length == 0, "{length} bytes");
        // The length says what is there, so the cut is found inside.
        let mut shorter = whole[..length].to_vec();
        if let Some(head) = shorter.first_chunk_mut::<4>() {
            *head = u32::try_from(length).unwrap().to_be_bytes();
            assert!(StoredMessage::decode_all(shorter.into()).is_err(), "{length} bytes");
        }
    }
    for at in 0..whole.len() {
        for byte in [0, 1, 0x7f, 0x80, 0xff] {
            let mut changed = whole.clone();
            changed[at] = byte;
            let _either = StoredMessage::decode_all(changed.into());
        }
    }
}
