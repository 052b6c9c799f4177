//! What holds for any text.

use promql_parser::label::Matcher;
use promql_parser::parser::token::T_EQL_REGEX;
use proptest::prelude::*;

use super::super::check::{self, LONGEST, Use};
use super::super::scan::Scanner;
use super::super::{Names, fill, matchers, query, selector};
use super::in_time;
use super::texts::{PIECES, expressions, fragments, good, names, repetitions};

fn values(text: &str) -> Vec<(String, String, String)> {
    let tokens = check::read(text, Use::Query).unwrap();
    let found = matchers::read(&tokens).unwrap();
    found.into_iter().map(|m| (m.label, m.operator.to_owned(), m.value)).collect()
}

fn survives(text: &str, (namespace, service, deployment): &(String, String, String)) {
    let names = Names { namespace, service, deployment };
    assert_eq!(Scanner::new(text).map(|token| token.text).collect::<String>(), text);
    let filled = in_time(text, || fill(text, &names));
    let fits = filled.chars().count() <= LONGEST;
    if let Ok(found) = in_time(text, || selector(text)) {
        assert!(query(text).is_ok(), "{text:?}");
        assert!(!fits || selector(&filled) == Ok(found), "{text:?} became {filled:?}");
        keeps_values(text, &filled, &names);
    }
    if in_time(text, || query(text)).is_ok() {
        assert!(!fits || query(&filled).is_ok(), "{text:?} became {filled:?}");
    }
    for error in [selector(text).err(), query(text).err()].into_iter().flatten() {
        assert!(error.at.is_none_or(|at| at >= 1 && at <= text.chars().count()), "{error:?}: {text:?}");
        assert!(error.reason.chars().count() < 300 && !error.reason.contains(char::is_control), "{error:?}");
    }
}

/// The values of the labels are what a replacement in the values themselves makes of them.
fn keeps_values(text: &str, filled: &str, names: &Names<'_>) {
    let replaced = |value: &str, [a, b, c]: [String; 3]| {
        value.replace("{{namespace}}", &a).replace("{{service}}", &b).replace("{{deployment}}", &c)
    };
    let plain = [names.namespace, names.service, names.deployment].map(str::to_owned);
    let escape = |name: &str| {
        name.chars()
            .map(|c| if r"\.+*?()|[]{}^$".contains(c) { format!("\\{c}") } else { c.to_string() })
            .collect::<String>()
    };
    let escaped = [names.namespace, names.service, names.deployment].map(escape);
    for (before, after) in values(text).into_iter().zip(values(filled)) {
        let expected = if before.1.contains('~') { escaped.clone() } else { plain.clone() };
        assert_eq!(replaced(&before.2, expected), after.2, "{text:?} became {filled:?}");
        if before.1 == "=~" && before.2 == "{{service}}" {
            let regex = Matcher::new_matcher(T_EQL_REGEX, after.0, after.2).unwrap();
            assert!(regex.is_match(names.service));
            assert!(!regex.is_match(&format!("{}x", names.service)));
        }
    }
}

proptest! {
    #[test]
    fn no_text_harms(text in "(?s).{0,2048}", names in names()) {
        survives(&text, &names);
    }

    #[test]
    fn no_ascii_text_harms(text in r"[ -~\n]{0,300}", names in names()) {
        survives(&text, &names);
    }

    #[test]
    fn nothing_like_promql_harms(text in fragments(), names in names()) {
        survives(&text, &names);
    }

    #[test]
    fn a_selector_is_filled_exactly(text in good(), names in names()) {
        prop_assert!(selector(&text).is_ok(), "{text}: {:?}", selector(&text));
        survives(&text, &names);
        survives(&format!("sum(rate({text}[{{{{window}}}}]))"), &names);
    }

    #[test]
    fn no_repetition_harms(text in repetitions(), names in names()) {
        survives(&text, &names);
    }

    #[test]
    fn no_expression_harms(
        text in expressions(),
        names in names(),
        piece in prop::sample::select(PIECES),
        at in 0..200_usize,
    ) {
        survives(&text, &names);
        let (head, tail): (String, String) = (text.chars().take(at).collect(), text.chars().skip(at).collect());
        survives(&format!("{head}{piece}{tail}"), &names);
        survives(&format!("{head}{}", tail.chars().skip(1).collect::<String>()), &names);
    }
}
