//! Reading JSON, and its one spelling.

use super::*;

fn canonical(text: &str) -> String {
    Json::parse(text.as_bytes()).unwrap().canonical()
}

#[test]
fn array_index_has_one_spelling() {
    let value = Json::parse(b"[1,[2]]").unwrap();

    assert_eq!(value.pointer("/1/0"), Some(&Json::parse(b"2").unwrap()));
    for pointer in ["/01", "/+1", "/1/00", "/1/-0", "/1/ 0", "/-", "/1/"] {
        assert_eq!(value.pointer(pointer), None, "{pointer}");
    }
}

#[test]
fn key_order_spacing_and_number_spelling_never_change_the_canonical_form() {
    assert_eq!(canonical(r#"{"b": 1.0, "a": [1e2, -0]}"#), canonical(r#"{"a":[100,0],"b":1}"#));
    assert_eq!(canonical("1.10"), "1.1");
    assert_eq!(canonical("\"\\u00e9\\n\""), "\"é\\u000a\"");
}

/// B48, serde-rs/json#1170: integers beyond 2^64 must not collapse into the same float.
#[test]
fn big_integers_and_long_fractions_keep_every_digit() {
    assert_ne!(canonical("18446744073709551616"), canonical("18446744073709551617"));
    assert_eq!(canonical("1.5777777777770001"), "1.5777777777770001");
    assert_eq!(canonical("9007199254740993"), "9007199254740993");
    assert_eq!(canonical("1e400"), format!("1{}", "0".repeat(400)));
    assert_eq!(canonical("1e4000"), "1e4000");
}

/// B47, hirethunk/verbs#53: of a repeated key MySQL's JSON type keeps the last value; so do we.
#[test]
fn the_last_of_repeated_keys_wins() {
    assert_eq!(canonical(r#"{"a":2,"a":3}"#), r#"{"a":3}"#);
}

#[test]
fn numbers_have_one_spelling_for_one_value() {
    for (text, spelling) in [
        ("-0", "0"),
        ("0.0", "0"),
        ("0e5", "0"),
        ("100", "100"),
        ("1E+2", "100"),
        ("120e-1", "12"),
        ("0.10e1", "1"),
        ("1e-3", "0.001"),
        ("-1.50", "-1.5"),
        ("-12.5e1", "-125"),
        ("1000.0001", "1000.0001"),
        ("12e999", "12e999"),
        ("-1e1000", "-1e1000"),
        ("1e-1000", "1e-1000"),
    ] {
        assert_eq!(canonical(text), spelling, "{text}");
    }
    assert_eq!(canonical("1e999"), format!("1{}", "0".repeat(999)));
    assert_eq!(canonical("1e-999"), format!("0.{}1", "0".repeat(998)));
}

#[test]
fn every_kind_of_value_has_a_name_and_only_numbers_have_a_text() {
    for (text, kind, number) in [
        ("null", "null", None),
        ("false", "a boolean", None),
        ("7", "a whole number", Some("7")),
        ("70", "a whole number", Some("70")),
        ("7.0", "a whole number", Some("7")),
        ("0", "a whole number", Some("0")),
        ("7.5", "a fractional number", Some("7.5")),
        ("\"7\"", "a string", None),
        ("[7]", "an array", None),
        ("{}", "an object", None),
    ] {
        let json = Json::parse(text.as_bytes()).unwrap();

        assert_eq!((json.kind(), json.number_text().as_deref()), (kind, number), "{text}");
    }
}

#[test]
fn escapes_are_read_and_only_what_must_be_is_escaped_again() {
    let text = |json: &str| match Json::parse(json.as_bytes()) {
        Ok(Json::Text(text)) => text,
        other => panic!("{json} is {other:?}"),
    };

    assert_eq!(text(r#""\"\\\/\b\f\n\r\t\u0041""#), "\"\\/\u{8}\u{c}\n\r\tA");
    assert_eq!(text(r#""\ud83d\ude00""#), "😀");
    assert_eq!(text(r#""\ud800\udc00\uDBFF\uDFFF""#), "\u{10000}\u{10ffff}");
    assert_eq!(text(r#""\ud7ff\ue000""#), "\u{d7ff}\u{e000}", "the neighbours of the surrogates");
    assert_eq!(canonical(r#""\u0000\u001F\u0020\"\\\/é""#), r#""\u0000\u001f \"\\/é""#);
}

#[test]
fn white_space_may_stand_around_everything() {
    let spaced = " \t\r\n{ \"a\" : [ 1 , 2 ] , \"b\" : { } , \"c\" : [ ] , \"d\" : true } \n";

    assert_eq!(canonical(spaced), r#"{"a":[1,2],"b":{},"c":[],"d":true}"#);
}

#[test]
fn hostile_nesting_is_refused_instead_of_exhausting_the_stack() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let nested = |depth: usize| format!("{}1{}", open.repeat(depth), close.repeat(depth));

        assert!(Json::parse(nested(128).as_bytes()).is_ok(), "{open}");
        for depth in [129, 100_000] {
            let error = Json::parse(nested(depth).as_bytes()).unwrap_err();
            assert_eq!((error.at, error.problem), (129 * open.len(), "nested deeper than 128"));
        }
    }
}

#[test]
fn malformed_text_is_refused_with_its_place() {
    for (text, at, problem) in [
        ("", 0, "end of text"),
        (" ", 1, "end of text"),
        ("x", 0, "unexpected character"),
        ("nul", 0, "unknown literal"),
        ("01", 1, "text after the value"),
        ("1 2", 2, "text after the value"),
        ("-", 1, "expected a digit"),
        ("1.", 2, "expected a digit"),
        ("1.e5", 2, "expected a digit"),
        ("1e", 2, "expected a digit"),
        ("1e+", 3, "expected a digit"),
        ("[1,]", 3, "unexpected character"),
        ("[1", 2, "expected a comma or a closing bracket"),
        ("[1}", 2, "expected a comma or a closing bracket"),
        ("{1:2}", 1, "expected a key"),
        ("{\"a\" 1}", 5, "expected a colon"),
        ("{\"a\":}", 5, "unexpected character"),
        ("{\"a\":1]", 6, "expected a comma or a closing brace"),
        ("{\"a\":1,}", 7, "expected a key"),
        ("\"a", 2, "unclosed string"),
        ("\"a\u{1}\"", 2, "control character in a string"),
        ("\"\u{1f}\"", 1, "control character in a string"),
        ("\"\\x\"", 3, "unknown escape"),
        ("\"\\", 2, "end of text"),
        ("\"\\u12\"", 3, "expected four hexadecimal digits"),
        ("\"\\u+123\"", 3, "expected four hexadecimal digits"),
        ("\"\\u12é\"", 3, "expected four hexadecimal digits"),
        ("\"\\ud800\"", 7, "lone surrogate"),
        ("\"\\udc00\"", 7, "lone surrogate"),
        ("\"\\ud800\\n\"", 7, "lone surrogate"),
        ("\"\\ud800\\u0041\"", 13, "lone surrogate"),
        ("\"\\ud800\\udbff\"", 13, "lone surrogate"),
        ("\"\\ud800\\ue000\"", 13, "lone surrogate"),
        ("[1e9223372036854775808]", 1, "exponent out of range"),
        ("10e9223372036854775807", 0, "exponent out of range"),
    ] {
        assert_eq!(Json::parse(text.as_bytes()), Err(InvalidJson { at, problem }), "{text:?}");
    }
    assert_eq!(Json::parse(b"\"a\xff\""), Err(InvalidJson { at: 2, problem: "not UTF-8" }));
}

#[test]
fn a_pointer_reaches_into_objects_and_arrays() {
    let json = Json::parse(br#"{"a/b":[{"c":7},8],"~1":9}"#).unwrap();
    let at = |pointer: &str| json.pointer(pointer).map(Json::canonical);

    assert_eq!(at(""), Some(json.canonical()));
    assert_eq!(at("/a~1b/0/c"), Some("7".into()));
    assert_eq!(at("/a~1b/1"), Some("8".into()));
    assert_eq!(at("/~01"), Some("9".into()));
    for nowhere in ["/missing", "~01", "/", "/a~1b/2", "/a~1b/1/c", "/a~1b/c"] {
        assert_eq!(at(nowhere), None, "{nowhere:?}");
    }
}
