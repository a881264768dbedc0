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

        assert_eq!(
            hash,
            [
                0xef, 0xfc, 0xdf, 0x6a, 0xe5, 0xeb, 0x2f, 0xa2, 0xd2, 0x74, 0x16, 0xd5, 0xf1, 0x84, 0xdf,
                0x9c, 0x25, 0x9a, 0x7c, 0x79
            ]
        );
    }
}
