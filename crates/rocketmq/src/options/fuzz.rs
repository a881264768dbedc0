//! An address is read or refused, and neither message nor options show the secret.

use seeded_fuzz::run;

use super::Options;

#[test]
fn proxy_addresses() {
    const SECRET: &str = "s3cr3tcanary";
    run("proxy_addresses", |source| {
        let words = [
            "rocketmq://",
            "rocketmqs://",
            "app:",
            "@",
            "host",
            ":8081",
            ",",
            "/",
            "%2f",
            "?",
            "namespace=a",
            "request_timeout=",
            "cacertfile=x",
            "&",
            "[::1]",
        ];
        let text = source.text(10, &words);
        let url = if source.one_in(2) {
            format!("rocketmq://app:{SECRET}@{text}")
        } else {
            format!("{text}:{SECRET}@{}", source.text(4, &words))
        };
        let shown = match url.parse::<Options>() {
            Ok(options) => {
                let elsewhere = options.addresses.iter().any(|address| address.host.contains(SECRET))
                    || options.credentials.as_ref().is_some_and(|pair| pair.access_key.contains(SECRET));
                if elsewhere { String::new() } else { format!("{options:?} {options}") }
            }
            Err(error) => error.to_string(),
        };
        assert!(!shown.contains(SECRET), "{url:?} is shown as {shown:?}");
    });
}
