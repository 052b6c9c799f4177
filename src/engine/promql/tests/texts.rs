//! Texts and names of all kinds, made at random.

use proptest::prelude::*;

use super::super::check::LONGEST;

/// Pieces of PromQL, so that what is put together is often nearly right.
pub const PIECES: &[&str] = &[
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "[5m]",
    "[5m:1m]",
    "[{{window}}]",
    "{{service}}",
    "{{namespace}}",
    "{{window}}",
    "{{",
    "}}",
    " offset ",
    "offset 5m",
    " @ ",
    "@ end()",
    "@ 1",
    "\"",
    "'",
    "`",
    "\\",
    "\\\\",
    "\\.",
    "\\\"",
    "1e999",
    "1e30",
    "[1e30]",
    "[99999999999999y]",
    "99999999999999999999",
    " by (",
    " bool ",
    " on (a) ",
    "group_left",
    "sum",
    "sum(",
    "rate(",
    "x",
    "up",
    "x{a=\"b\"}",
    "a=\"b\"",
    "a=~\"",
    "a=~`",
    "=~",
    "!~",
    "=",
    "!=",
    "==",
    ",",
    ":",
    "+",
    "-",
    "*",
    "/",
    "%",
    "^",
    "<",
    ">",
    " and ",
    " or ",
    " unless ",
    "#",
    "# {{foo}}\n",
    "\n",
    " ",
    "é",
    "😀",
    "\0",
    "\u{7f}",
    ".",
    ".5",
    "0x",
    "0x1f",
    "1",
    "5m",
    "nan",
    "inf",
    " offset nan",
    "__name__",
    "label_replace(",
    "\"{{service}}\"",
    "`{{service}}`",
    "fill",
    "fill(",
    "start()",
    "\\Q",
    "\\E",
    "|",
    "?",
    "$",
];

pub fn fragments() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(PIECES), 0..60).prop_map(|pieces| pieces.concat())
}

/// A few pieces over and over, up to the longest text.
pub fn repetitions() -> impl Strategy<Value = String> {
    (prop::collection::vec(prop::sample::select(PIECES), 1..5), 0..LONGEST).prop_map(|(pieces, length)| {
        let once = pieces.concat();
        once.chars().cycle().take(length).collect()
    })
}

/// Queries whose grammar is right, though not always their types.
pub fn expressions() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        good(),
        good().prop_map(|x| format!("rate({x}[{{{{window}}}}])")),
        prop::sample::select(vec![
            "1",
            "0x1f",
            "inf",
            "5m",
            "up offset -1h",
            "up @ start()",
            "up[5m]",
            "'a'",
            "time()"
        ])
        .prop_map(String::from),
    ];
    leaf.prop_recursive(8, 64, 3, |inner| {
        let signs = vec![
            "+",
            "-",
            "*",
            "/",
            "%",
            "^",
            "==",
            "> bool",
            "and",
            "or",
            "unless",
            "atan2",
            "+ on (a) group_left (b)",
        ];
        let calls = vec!["sum", "sum by (a)", "abs", "scalar", "vector", "avg_over_time", "topk", "", "-", "absent"];
        prop_oneof![
            (inner.clone(), prop::sample::select(signs), inner.clone())
                .prop_map(|(a, sign, b)| format!("{a} {sign} {b}")),
            (prop::sample::select(calls), inner.clone()).prop_map(|(call, a)| format!("{call}({a})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("topk({a}, {b})")),
            inner.clone().prop_map(|a| format!("max_over_time(({a})[1h:{{{{window}}}}])")),
            inner.prop_map(|a| format!("label_replace({a}, 'a', '$1', `b`, \"(.*)\") # {{{{foo}}}}\n")),
        ]
    })
}

/// Selectors and queries that are right.
pub fn good() -> impl Strategy<Value = String> {
    let quote = prop::sample::select(vec!['"', '\'', '`']);
    let operator = prop::sample::select(vec!["=", "!=", "=~", "!~"]);
    let body = prop::collection::vec(
        prop::sample::select(vec![
            "a",
            "-",
            "/",
            "é",
            ".*",
            "x|y",
            "{{service}}",
            "{{namespace}}",
            "{{deployment}}",
            " ",
            "#",
            "(b)",
        ]),
        0..5,
    );
    let matcher = (operator, quote, body)
        .prop_map(|(operator, quote, body)| format!("a{operator}{quote}{}{quote}", body.concat()));
    prop::collection::vec(matcher, 0..5).prop_map(|all| format!("x_total{{{}}}", all.join(" , ")))
}

pub fn names() -> impl Strategy<Value = (String, String, String)> {
    let dns = "[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?";
    (dns, prop_oneof![dns.prop_map(String::from), "[a-z.\\\\\"'\n*+?()|\\[\\]^$é]{1,12}".prop_map(String::from)], dns)
}
