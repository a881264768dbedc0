//! Commands of the remoting protocol and their frames. No socket here.
//!
//! A frame is its length (4 bytes, without themselves), the serialization (1 byte, 0 is JSON) with the length of the
//! header (3 bytes), the header and the body. Answers carry the number (`opaque`) of their request.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use crate::credentials::Credentials;
use crate::signature::hmac_sha1;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

/// The largest frame that is read: query answers hold up to 32 messages of 4 MiB.
pub(super) const FRAME_BYTES_MAX: usize = 160 * 1024 * 1024;

/// What the header calls the protocol's version: the number of release 5.3.0. From 4.9.4 on, all fields are signed and
/// routes come as standard JSON.
const VERSION: i32 = 473;

/// The flag of an answer.
const ANSWER: i32 = 1;

/// One request or answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Command {
    /// What is asked, or what it came to: 0 is success.
    pub code: i32,
    /// The number of the request.
    pub opaque: i32,
    /// Bit 0 marks an answer.
    pub flag: i32,
    /// The server's words.
    pub remark: Option<String>,
    /// The fields of the request's or answer's own header.
    pub fields: BTreeMap<String, String>,
    /// The body, empty when there is none.
    pub body: Bytes,
}

/// A value as it stands in the fields of a command: everything is text there.
pub(super) struct FieldValue(String);

impl From<&str> for FieldValue {
    fn from(value: &str) -> Self {
        Self(value.to_owned())
    }
}

impl From<String> for FieldValue {
    fn from(value: String) -> Self {
        Self(value)
    }
}

impl From<u64> for FieldValue {
    fn from(value: u64) -> Self {
        Self(value.to_string())
    }
}

impl From<u32> for FieldValue {
    fn from(value: u32) -> Self {
        Self(value.to_string())
    }
}

impl From<bool> for FieldValue {
    fn from(value: bool) -> Self {
        Self(value.to_string())
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    code: i32,
    #[serde(default)]
    flag: i32,
    #[serde(default)]
    language: Option<String>,
    opaque: i32,
    #[serde(default)]
    version: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    remark: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ext_fields: Option<BTreeMap<String, String>>,
}

impl Command {
    /// A request without fields or body.
    pub fn request(code: i32) -> Self {
        Self { code, opaque: 1, flag: 0, remark: None, fields: BTreeMap::new(), body: Bytes::new() }
    }

    /// The same command with a further field.
    pub fn with(mut self, name: &str, value: impl Into<FieldValue>) -> Self {
        self.fields.insert(name.to_owned(), value.into().0);
        self
    }

    /// The same command with this body.
    pub fn with_body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// The same request, signed: the hash covers the values of all fields in the order of their names, and the body.
    pub fn signed(self, credentials: &Credentials) -> Self {
        let mut signed = self.with("AccessKey", credentials.access_key.as_str());
        let mut content: Vec<u8> = signed.fields.values().flat_map(|value| value.bytes()).collect();
        content.extend_from_slice(&signed.body);
        let signature = BASE64.encode(hmac_sha1(credentials.secret_key.as_bytes(), &content));
        signed.fields.insert("Signature".to_owned(), signature);
        signed
    }

    /// Whether this answers the request of that number.
    pub fn answers(&self, opaque: i32) -> bool {
        self.flag & ANSWER != 0 && self.opaque == opaque
    }

    /// The frame of this command.
    pub fn encode(&self) -> Bytes {
        let header = Header {
            code: self.code,
            flag: self.flag,
            language: Some("RUST".to_owned()),
            opaque: self.opaque,
            version: VERSION,
            remark: self.remark.clone(),
            ext_fields: Some(self.fields.clone()),
        };
        let header = serde_json::to_vec(&header).expect("numbers and texts are JSON");
        let length = |bytes: usize| u32::try_from(bytes).expect("requests are far smaller than 4 GiB");
        let mut frame = BytesMut::with_capacity(8 + header.len() + self.body.len());
        frame.put_u32(length(4 + header.len() + self.body.len()));
        // The highest byte is the serialization: 0 is JSON.
        frame.put_u32(length(header.len()));
        frame.extend_from_slice(&header);
        frame.extend_from_slice(&self.body);
        frame.freeze()
    }

    /// The command in a frame, given without the frame's own length.
    ///
    /// # Errors
    /// What does not fit, in words.
    pub fn decode(frame: &Bytes) -> Result<Self, String> {
        let Some(start) = frame.first_chunk::<4>() else {
            return Err(format!("a frame of {} bytes holds no header", frame.len()));
        };
        let [serialization, length @ ..] = *start;
        if serialization != 0 {
            return Err(format!("the header is serialized as {serialization}, only 0 (JSON) is read"));
        }
        let length = usize::from(length[0]) << 16 | usize::from(length[1]) << 8 | usize::from(length[2]);
        let rest = frame.slice(4..);
        if rest.len() < length {
            return Err(format!(
                "a header of {length} bytes does not fit in a frame of {} bytes",
                frame.len()
            ));
        }
        let header: Header =
            serde_json::from_slice(&rest[..length]).map_err(|error| format!("header: {error}"))?;
        Ok(Self {
            code: header.code,
            opaque: header.opaque,
            flag: header.flag,
            remark: header.remark,
            fields: header.ext_fields.unwrap_or_default(),
            body: rest.slice(length..),
        })
    }
}
