//! Ages on the command line, such as `90s`, `15m`, `2h`, `30d`, `4w`.

use std::time::Duration;

/// A hundred years: longer ages are a misunderstanding, and no database takes them off its dates.
const AGE_MAX: Duration = Duration::from_hours(36_500 * 24);

/// Reads an age.
///
/// # Errors
/// It is no whole number with a unit, or longer than a hundred years.
pub fn parse(text: &str) -> Result<Duration, String> {
    const FORM: &str = "write a whole number and s, m, h, d or w, such as 2h or 30d";
    let unit = text.chars().last().ok_or_else(|| FORM.to_owned())?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        'w' => 604_800,
        _ => return Err(FORM.into()),
    };
    let number = &text[..text.len() - 1];
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(FORM.into());
    }
    let age =
        number.parse::<u64>().ok().and_then(|number| number.checked_mul(seconds)).map(Duration::from_secs);
    age.filter(|age| *age <= AGE_MAX).ok_or_else(|| "is longer than a hundred years".into())
}

/// An age in its largest whole unit, as [`parse`] reads it.
pub fn shown(age: Duration) -> String {
    let seconds = age.as_secs();
    let whole = |(length, _): &(u64, char)| seconds > 0 && seconds.is_multiple_of(*length);
    let (length, unit) = [(86_400, 'd'), (3_600, 'h'), (60, 'm')].into_iter().find(whole).unwrap_or((1, 's'));
    format!("{}{unit}", seconds / length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_a_whole_number_with_its_unit() {
        for (text, seconds) in
            [("0s", 0), ("90s", 90), ("15m", 900), ("2h", 7_200), ("30d", 2_592_000), ("1w", 604_800)]
        {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
    }

    #[test]
    fn an_age_is_shown_as_it_can_be_written() {
        for text in ["0s", "90s", "15m", "2h", "30d", "25h"] {
            assert_eq!(shown(parse(text).unwrap()), text);
        }
        assert_eq!(shown(parse("48h").unwrap()), "2d");
    }

    #[test]
    fn anything_else_is_refused_with_the_form() {
        for text in
            ["", "h", "2", "-2h", "+2h", "2.5h", "2 h", "2H", "2小时", "99999999999999999999d", "36501d"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
