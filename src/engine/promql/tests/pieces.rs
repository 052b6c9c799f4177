//! What is wrong with placeholders, strings, braces and regular expressions, and what is said of it.

use super::super::scan::{Kind, Scanner};
use super::super::{fill, query, selector};
use super::{NAMES, refused, refused_query};

#[test]
fn a_number_is_one_piece_however_it_is_written() {
    for number in ["7", ".5", "1.5", "1e5", "1e+5", "1.5e-5", "1E+5", "0x1f", "1_000"] {
        let text = format!("{number}+2");
        let pieces: Vec<_> = Scanner::new(&text).map(|token| (token.text, token.kind)).collect();
        assert_eq!(pieces, [(number, Kind::Number), ("+", Kind::Sign), ("2", Kind::Number)], "{text}");
    }
    // what ends with an e is no power of ten in base sixteen
    assert_eq!(Scanner::new("0xfe+5").map(|token| token.text).collect::<Vec<_>>(), ["0xfe", "+", "5"]);
}

#[test]
fn placeholders_are_known_by_name_and_place() {
    let there_are = "there are {{namespace}}, {{service}} and {{deployment}}";
    for (text, message) in [
        (r#"x_total{a="b",code="{{foo}}"}"#, format!("at character 21: unknown placeholder {{{{foo}}}}: {there_are}")),
        (
            r#"x{a="é",b="{{ service }}"}"#,
            format!("at character 12: unknown placeholder {{{{ service }}}}: {there_are}"),
        ),
        (r#"x{a="{{Service}}"}"#, format!("at character 6: unknown placeholder {{{{Service}}}}: {there_are}")),
        (r#"x{a="{{}}"}"#, format!("at character 6: unknown placeholder {{{{}}}}: {there_are}")),
        (
            r#"x{a="{{window}}"}"#,
            format!("at character 6: the placeholder {{{{window}}}} is none of a selector: {there_are}"),
        ),
        ("x[{{window}}]", format!("at character 3: the placeholder {{{{window}}}} is none of a selector: {there_are}")),
        (r#"x{a="{{service"}"#, format!("at character 6: the placeholder that begins here does not end: {there_are}")),
        (r#"x{a="{{service}"}"#, format!("at character 6: the placeholder that begins here does not end: {there_are}")),
        (
            r#"x{a="{{{service}}}"}"#,
            format!("at character 6: the placeholder that begins here does not end: {there_are}"),
        ),
        (r#"x{{a="b"}"#, format!("at character 2: the placeholder that begins here does not end: {there_are}")),
    ] {
        assert_eq!(refused(text), message, "{text}");
    }
    let misplaced = "{{service}} stands only in the quoted value of a label, as in service=\"{{service}}\"";
    assert_eq!(refused("{{service}}_requests_total"), format!("at character 1: {misplaced}"));
    assert_eq!(refused("x{a={{service}}}"), format!("at character 5: {misplaced}"));
    assert_eq!(refused(r#"x{"{{service}}"="b"}"#), format!("at character 4: {misplaced}"));
    assert_eq!(refused(r#"{"{{service}}"}"#), format!("at character 3: {misplaced}"));
    assert_eq!(
        refused(r#"{__name__="{{service}}_total"}"#),
        "at character 11: the name of a metric cannot have placeholders: write it out"
    );
    assert_eq!(
        refused_query("avg(x{a=\"{{pod}}\"})"),
        format!(
            "at character 10: unknown placeholder {{{{pod}}}}: there are {{{{namespace}}}}, {{{{service}}}}, {{{{deployment}}}} and {{{{window}}}}"
        )
    );
    let window = "{{window}} stands where a duration stands";
    assert!(refused_query("avg(x{a=\"{{window}}\"})").starts_with(&format!("at character 10: {window}")));
    assert!(refused_query("rate(x{{window}})").starts_with(&format!("at character 7: {window}")));
    assert_eq!(
        refused_query(r#"label_replace(x, "a", "{{service}}", "b", "")"#),
        format!("at character 24: {misplaced}")
    );
}

#[test]
fn strings_have_the_escapes_of_promql() {
    for escape in
        [r"\a", r"\b", r"\f", r"\n", r"\r", r"\t", r"\v", r"\\\\", r#"\""#, r"\x41", r"\u0041", r"\U00000041", r"\101"]
    {
        let text = format!("x{{a=~\"{escape}\"}}");
        assert_eq!(selector(&text).map_err(|error| error.to_string()).err(), None, "{text}");
    }
    // each of these is a bracket, and a bracket alone is no regular expression
    for escape in [r"\x28", r"\u0028", r"\U00000028", r"\050"] {
        let said = refused(&format!("x{{a=~\"{escape}\"}}"));
        assert!(!said.contains("no escape"), "{said}");
    }
    for escape in [r"\u004", r"\U0000004", r"\x4", r"\40"] {
        assert!(refused(&format!("x{{a=~\"{escape}\"}}")).contains("is no escape"), "{escape}");
    }
}

#[test]
fn strings_and_braces_say_where_they_are_wrong() {
    for (text, message) in [
        ("x{a=\"b}", "at character 5: the string that begins here does not end: close its quotes"),
        ("x{a=\"b\n\"}", "at character 7: the line ends inside of a string: close its quotes"),
        (r#"x{a=~"5\.."}"#, "at character 8: \\. is no escape in a string: for a backslash write two"),
        (r#"x{a='\"'}"#, "at character 6: \\\" is no escape in a string: for a backslash write two"),
        (r#"x{a="\xg0"}"#, "at character 6: \\x is no escape in a string: for a backslash write two"),
        (r#"x{a="\ud800"}"#, "at character 6: \\u is no escape in a string: for a backslash write two"),
        (r#"x{a="\400"}"#, "at character 6: \\4 is no escape in a string: for a backslash write two"),
        ("x{a=b}", "at character 4: the value after = stands in quotes, as in service=\"{{service}}\""),
        ("x{a=~5}", "at character 4: the value after =~ stands in quotes, as in service=\"{{service}}\""),
        ("x{a}", "at character 3: after the label a one of =, !=, =~ and !~ is missing"),
        ("x{a==\"b\"}", "at character 3: after the label a one of =, !=, =~ and !~ is missing"),
        ("x{a=\"b\" c=\"d\"}", "at character 9: a comma or the closing } is missing before this"),
        (
            "x{a=\"b\" or c=\"d\"}",
            "at character 9: there is no or between braces in PromQL: use =~\"a|b\", or two selectors",
        ),
        ("x{,}", "at character 3: the name of a label is missing here, as in {service=\"{{service}}\"}"),
        ("x{a=\"b\"", "at character 2: this { is not closed"),
        ("x}", "at character 2: nothing is open that this } could close"),
        ("my.metric", "at character 3: \".\" means nothing here: what has such characters stands in quotes"),
        (r#"größe{a="é"}"#, "at character 3: \"ö\" means nothing here: what has such characters stands in quotes"),
        (r#"x{größe="a"}"#, "at character 5: \"ö\" means nothing here: what has such characters stands in quotes"),
        ("x{é=\"b\"}", "at character 3: \"é\" means nothing here: what has such characters stands in quotes"),
    ] {
        assert_eq!(refused(text), message, "{text}");
    }
    assert_eq!(refused_query("sum(rate(x[5m])"), "at character 4: this ( is not closed");
    assert_eq!(refused_query("sum(x))"), "at character 7: nothing is open that this ) could close");
}

#[test]
fn regular_expressions_are_refused_only_when_surely_wrong() {
    for (regex, message) in [
        ("a(b", "at character 8: this ( of the regular expression is not closed"),
        ("a)b", "at character 8: nothing is open in the regular expression that this ) could close"),
        ("\\Qabcde\\E(b", "at character 16: this ( of the regular expression is not closed"),
        ("a[b", "at character 8: this [ of the regular expression is not closed"),
        ("*a", "at character 7: there is nothing that this * could repeat"),
        ("a|+", "at character 9: there is nothing that this + could repeat"),
        ("a\\", "at character 8: the regular expression ends in a lone backslash"),
        ("(?!a)b", "at character 7: the regular expressions of Prometheus (RE2) cannot look ahead or behind"),
        ("(?<=a)b", "at character 7: the regular expressions of Prometheus (RE2) cannot look ahead or behind"),
        (
            "{{service}}*",
            "at character 18: this repeats only the last character of the name: put the placeholder into ()",
        ),
        (
            "[{{service}}]",
            "at character 8: between [ and ] only single characters count: a placeholder cannot stand there",
        ),
        ("\\{{service}}", "at character 7: a backslash cannot stand just before a placeholder"),
        ("\\Q{{service}}\\E", "at character 7: a placeholder cannot stand after \\Q: names are escaped without it"),
    ] {
        assert_eq!(refused(&format!("x{{a=~`{regex}`}}")), message, "{regex}");
    }
    for regex in [
        "",
        "5..",
        "a|",
        "(a|b)+?",
        "[]a]",
        "[^]a]",
        "[[:alpha:](]",
        "[\\]]",
        "[\\](]",
        "\\Qa(b\\E",
        "\\Qa(b",
        "(?i)a",
        "(?P<n>a)",
        "(?<n>a)",
        "a{bbb}c",
        "a{2,3}",
        "\\C",
        "\\pN",
        "({{service}})+",
        "{{service}}{{service}}",
        "{{service}}",
        "^a$",
        "a]",
        "\\\\{{service}}",
        "^*",
    ] {
        let text = format!("x{{a=~`{regex}`}}");
        selector(&text).expect(&text);
        selector(&fill(&text, &NAMES)).expect(&text);
    }
}

#[test]
fn messages_stay_short_and_on_one_line() {
    let long = format!("x{{a=\"{{{{{}\u{7}}}}}\"}}", "y".repeat(2000));
    assert!(refused(&long).chars().count() < 300);
    for text in [&long, &format!("{}(1)", "y".repeat(2000)), "x{a=\"\\\u{7}\"}", "\u{7}", "x{a=\"b\"}\0"] {
        for error in [query(text).unwrap_err(), selector(text).unwrap_err()] {
            let message = error.to_string();
            assert!(!message.contains(char::is_control) && message.chars().count() < 400, "{message}");
        }
    }
}
