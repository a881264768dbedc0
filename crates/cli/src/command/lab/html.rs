//! The report as one HTML file: no scripts, nothing from elsewhere, every text escaped.

mod timeline;

use std::fmt::Write;

use super::Compared;
use super::audit::Found;
use super::report::Report;
use super::text::{Language, Words};

const STYLE: &str = "
:root { --ink: #1b1f24; --paper: #ffffff; --soft: #5b6673; --line: #d5dae0; --good: #1a7f37; --bad: #c02626; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ed; --paper: #14171a; --soft: #98a3af; --line: #343b43; --good: #4ac26b; --bad: #ff7b72; }
}
body { margin: 0 auto; max-width: 1500px; padding: 24px; background: var(--paper); color: var(--ink);
       font: 15px/1.55 system-ui, 'Noto Sans', 'Noto Sans CJK SC', 'PingFang SC', 'Microsoft YaHei', sans-serif; }
h1 { font-size: 26px; } h2 { font-size: 20px; margin-top: 40px; border-top: 1px solid var(--line); padding-top: 24px; }
h3 { font-size: 15px; margin: 16px 0 4px; } p { max-width: 75em; margin: 6px 0; }
code { color: var(--soft); } a { color: inherit; }
table { border-collapse: collapse; margin: 16px 0; } th, td { text-align: left; padding: 4px 14px 4px 0; border-bottom: 1px solid var(--line); }
.good { color: var(--good); } .bad { color: var(--bad); } .soft { color: var(--soft); }
.sides { display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 8px 32px; }
svg { max-width: 100%; height: auto; } svg text { font-size: 12px; fill: var(--ink); }
svg .time { fill: var(--soft); } svg .life { stroke: var(--line); } svg .dot { fill: var(--soft); }
svg .dot.good { fill: var(--good); } svg .dot.bad { fill: var(--bad); } svg .cross { stroke: var(--bad); stroke-width: 3; }
svg text.bad { fill: var(--bad); font-weight: 600; }
";

/// The document.
pub fn document(report: &Report<'_>, language: Language) -> String {
    let words = language.words();
    let mut page = String::new();
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"{}\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{1}</h1>\n<p>{}</p>\n<p>{}</p>\n",
        escaped(words.code),
        escaped(words.heading),
        escaped(words.introduction),
        escaped(words.counted)
    );
    let (class, verdict) = if report.passed() { ("good", words.passed) } else { ("bad", words.failed) };
    let _ = writeln!(page, "<p class=\"{class}\"><strong>{}</strong></p>", escaped(verdict));
    overview(&mut page, report, language);
    let mut told = None;
    for compared in report.compared {
        if told != Some(compared.id) {
            story(&mut page, compared, language);
            told = Some(compared.id);
        }
        sides(&mut page, compared, language);
    }
    page.push_str("</body>\n</html>\n");
    page
}

fn overview(page: &mut String, report: &Report<'_>, language: Language) {
    let words = language.words();
    page.push_str("<table>\n<tr>");
    for heading in [words.scenario, words.backend, words.window, words.naive, words.consign] {
        let _ = write!(page, "<th>{}</th>", escaped(heading));
    }
    page.push_str("</tr>\n");
    for compared in report.compared {
        let id = escaped(compared.id.name());
        let _ = write!(
            page,
            "<tr><td><a href=\"#{id}\">{id}</a></td><td>{}</td><td>{}</td>",
            escaped(compared.backend.name()),
            escaped(language.story(compared.id).title)
        );
        for found in [compared.naive.found, compared.consign.found] {
            let _ = write!(page, "<td>{}</td>", figures(found, words));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table>\n");
}

fn story(page: &mut String, compared: &Compared, language: Language) {
    let (story, words, id) = (language.story(compared.id), language.words(), escaped(compared.id.name()));
    let _ = writeln!(page, "<h2 id=\"{id}\">{} <code>{id}</code></h2>", escaped(story.title));
    let _ = writeln!(page, "<p>{}</p>", escaped(story.window));
    for (who, text) in
        [(words.naive, story.naive), (words.consign, story.consign), (words.backend, story.backends)]
    {
        let _ = writeln!(page, "<p><strong>{}:</strong> {}</p>", escaped(who), escaped(text));
    }
}

fn sides(page: &mut String, compared: &Compared, language: Language) {
    let words = language.words();
    page.push_str("<div class=\"sides\">\n");
    for (name, ran) in [(words.naive, &compared.naive), (words.consign, &compared.consign)] {
        let title = format!("{} / {}", compared.backend.name(), name);
        let _ = writeln!(page, "<div>\n<h3>{}: {}</h3>", escaped(&title), figures(ran.found, words));
        timeline::picture(page, &title, &ran.moments, language);
        page.push_str("</div>\n");
    }
    page.push_str("</div>\n");
}

fn figures(found: Found, words: &Words) -> String {
    let figure = |(word, count): (&str, i64)| {
        let class = if count == 0 { "good" } else { "bad" };
        format!("<span class=\"{class}\">{} {count}</span>", escaped(word))
    };
    [(words.lost, found.lost), (words.doubled, found.doubled), (words.wrong, found.wrong)]
        .map(figure)
        .join(", ")
}

/// Text that is nothing but text in HTML and in attributes.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_can_open_neither_a_tag_nor_an_attribute() {
        assert_eq!(escaped("<b a=\"1\" c='2'>&"), "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;");
    }
}
