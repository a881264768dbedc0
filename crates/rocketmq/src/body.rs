//! Bodies as they arrive: digests checked, compression undone.

use std::io::Read;

use bytes::Bytes;
use flate2::read::{GzDecoder, ZlibDecoder};
use md5::{Digest as _, Md5};
use sha1::Sha1;

use crate::generated::messages::{Digest, DigestType, Encoding, SystemProperties};
use crate::identity::upper_hex;

/// Largest body after decompression: a few bytes may claim to be very many.
const BODY_BYTES_MAX: u64 = 128 << 20;

/// The body as it was sent, or as it arrived with the reason why it cannot be read.
pub(crate) fn decode(body: Bytes, system: &SystemProperties) -> (Bytes, Option<String>) {
    if let Some(reason) = system.body_digest.as_ref().and_then(|digest| mismatch(&body, digest)) {
        return (body, Some(reason));
    }
    match Encoding::try_from(system.body_encoding) {
        Ok(Encoding::Identity | Encoding::Unspecified) => (body, None),
        Ok(Encoding::Gzip) => match decompress(&body) {
            Ok(Some(whole)) => (whole, None),
            Ok(None) => (body, None),
            Err(reason) => (body, Some(reason)),
        },
        Err(_) => (body, Some(format!("body encoding {} is unknown", system.body_encoding))),
    }
}

/// Why the digest does not fit; digests of a kind nobody knows are not judged.
fn mismatch(body: &[u8], digest: &Digest) -> Option<String> {
    let fits = match DigestType::try_from(digest.r#type) {
        Ok(DigestType::Crc32) => {
            u32::from_str_radix(&digest.checksum, 16).is_ok_and(|sum| sum == crc32fast::hash(body))
        }
        Ok(DigestType::Md5) => upper_hex(&Md5::digest(body)).eq_ignore_ascii_case(&digest.checksum),
        Ok(DigestType::Sha1) => upper_hex(&Sha1::digest(body)).eq_ignore_ascii_case(&digest.checksum),
        Ok(DigestType::Unspecified) | Err(_) => true,
    };
    (!fits).then(|| "the body does not fit its digest".to_owned())
}

/// Proxies say GZIP of every body that was compressed by a producer, whatever it was compressed with, and also of those
/// which they have decompressed themselves (`GrpcConverter` of apache/rocketmq looks at the producer's flag only). So
/// the first bytes decide; `None` means that nothing is compressed.
fn decompress(body: &[u8]) -> Result<Option<Bytes>, String> {
    let whole = match body {
        [0x1F, 0x8B, ..] => read(GzDecoder::new(body)),
        // RFC 1950: compression method 8, and a check that makes the two bytes a multiple of 31.
        [first @ 0x78, second, ..] if (u16::from(*first) << 8 | u16::from(*second)) % 31 == 0 => {
            read(ZlibDecoder::new(body))
        }
        [0x04, 0x22, 0x4D, 0x18, ..] => Err("the body is compressed with lz4".to_owned()),
        [0x28, 0xB5, 0x2F, 0xFD, ..] => Err("the body is compressed with zstd".to_owned()),
        _ => return Ok(None),
    };
    whole.map(Some)
}

fn read(decoder: impl Read) -> Result<Bytes, String> {
    let mut whole = Vec::new();
    let read = decoder.take(BODY_BYTES_MAX + 1).read_to_end(&mut whole);
    read.map_err(|error| format!("the body does not decompress: {error}"))?;
    if whole.len() as u64 > BODY_BYTES_MAX {
        return Err(format!("the body decompresses to more than {BODY_BYTES_MAX} bytes"));
    }
    Ok(whole.into())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};

    use super::*;

    fn system(encoding: i32, kind: DigestType, checksum: &str) -> SystemProperties {
        SystemProperties {
            body_encoding: encoding,
            body_digest: Some(Digest { r#type: kind.into(), checksum: checksum.to_owned() }),
            ..SystemProperties::default()
        }
    }

    fn plain(encoding: Encoding) -> SystemProperties {
        SystemProperties { body_encoding: encoding.into(), ..SystemProperties::default() }
    }

    /// The sums are the published ones of "abc".
    #[test]
    fn digest_that_does_not_fit_is_reported_with_the_body() {
        for (kind, checksum) in [
            (DigestType::Crc32, "352441C2"),
            (DigestType::Md5, "900150983cd24fb0d6963f7d28e17f72"),
            (DigestType::Sha1, "A9993E364706816ABA3E25717850C26C9CD0D89D"),
        ] {
            let right = decode("abc".into(), &system(1, kind, checksum));
            let wrong = decode("abd".into(), &system(1, kind, checksum));

            assert_eq!(right, ("abc".into(), None), "{kind:?}");
            assert_eq!(wrong.0, "abd");
            assert!(wrong.1.unwrap().contains("digest"), "{kind:?}");
        }
    }

    #[test]
    fn compressed_body_is_read_by_what_it_is_and_not_by_what_it_is_called() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(b"{}").unwrap();
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
        zlib.write_all(b"{}").unwrap();

        for body in [gzip.finish().unwrap(), zlib.finish().unwrap(), b"{}".to_vec()] {
            assert_eq!(decode(body.into(), &plain(Encoding::Gzip)), ("{}".into(), None));
        }
    }

    #[test]
    fn body_nobody_can_read_is_kept_with_the_reason() {
        let broken = decode(Bytes::from_static(b"\x1F\x8Bxx"), &plain(Encoding::Gzip));
        let zstd = decode(Bytes::from_static(b"\x28\xB5\x2F\xFD.."), &plain(Encoding::Gzip));
        let unknown = SystemProperties { body_encoding: 77, ..SystemProperties::default() };

        assert!(broken.1.unwrap().contains("does not decompress"));
        assert!(zstd.1.unwrap().contains("zstd"));
        assert!(decode("abc".into(), &unknown).1.unwrap().contains("77"));
    }
}
