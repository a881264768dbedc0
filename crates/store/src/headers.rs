//! Headers as the text of a JSON object.

use consign_core::event::Headers;
use consign_core::json::Json;

/// Reads headers. Scalars become their text, nested values their canonical JSON, null is left out.
///
/// # Errors
/// The text is not a JSON object; says why.
pub fn read(text: &[u8]) -> Result<Headers, String> {
    match Json::parse(text).map_err(|error| error.to_string())? {
        Json::Null => Ok(Headers::new()),
        Json::Object(entries) => Ok(entries
            .into_iter()
            .filter_map(|(name, value)| match value {
                Json::Null => None,
                Json::Text(text) => Some((name, text)),
                Json::Boolean(_) | Json::Number(_) | Json::Array(_) | Json::Object(_) => {
                    Some((name, value.canonical()))
                }
            })
            .collect()),
        other @ (Json::Boolean(_) | Json::Number(_) | Json::Text(_) | Json::Array(_)) => {
            Err(format!("{} instead of an object", other.kind()))
        }
    }
}

/// Writes headers as a JSON object; `None` when there are none.
///
/// # Errors
/// Two headers have the same name, of which JSON would keep one; the name.
pub fn write(headers: &Headers) -> Result<Option<String>, String> {
    if headers.is_empty() {
        return Ok(None);
    }
    let mut names = std::collections::BTreeSet::new();
    if let Some((name, _)) = headers.iter().find(|(name, _)| !names.insert(name)) {
        return Err(name.clone());
    }
    let entries = headers.iter().map(|(name, text)| (name.clone(), Json::Text(text.clone()))).collect();
    Ok(Some(Json::Object(entries).canonical()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_as_written() {
        let headers =
            vec![("traceparent".to_owned(), "00-ab\"\u{1}".to_owned()), ("b".to_owned(), "😀".to_owned())];

        let text = write(&headers).unwrap().unwrap();

        let mut read = read(text.as_bytes()).unwrap();
        read.sort();
        let mut wanted = headers;
        wanted.sort();
        assert_eq!(read, wanted);
    }

    #[test]
    fn a_repeated_name_is_refused_instead_of_dropped() {
        let twice = vec![("a".to_owned(), "1".to_owned()), ("a".to_owned(), "2".to_owned())];

        assert_eq!(write(&twice), Err("a".to_owned()));
    }

    #[test]
    fn anything_but_an_object_is_refused() {
        assert!(read(b"[1]").is_err());
        assert!(read(b"{").is_err());
        assert_eq!(read(b"null"), Ok(Headers::new()));
        assert_eq!(read(br#"{"n":1.0,"x":null}"#), Ok(vec![("n".to_owned(), "1".to_owned())]));
    }
}
