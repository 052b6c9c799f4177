//! What must not reach the parser.

use super::super::check::{DEEPEST, LONGEST, MOST_SIGNS};
use super::super::skeleton::skeleton;
use super::super::{query, selector};
use super::{in_time, refused, refused_query};

#[test]
fn a_long_duration_does_not_reach_the_parser() {
    // each of these makes promql-parser 0.11 panic
    for text in [
        "x[1e30]",
        "x[1e999]",
        "x[99999999999999999999999999]",
        "x[99999999999999999999999999.5]",
        "rate(x[5m:1e40])",
        "x offset 1e30",
        "x offset -99999999999999999999999999",
        "x offset # now\n + 1e+30",
        "x offset inf",
        "x offset - Inf",
        "x offset NaN",
    ] {
        assert!(refused_query(text).ends_with(" is too long"), "{text}");
        assert!(selector(text).is_err());
    }
    // and here it says that it must be greater than 0
    assert_eq!(refused_query("rate(x[99999999999999y])"), "at character 8: the duration 99999999999999y is too long");
    // the guard does not hang on the place
    assert_eq!(skeleton("x 1e30 offset(1e30) nAn inf{inf=''}"), "x 1 offset(1) 1 1{inf=\"\"}");
}

#[test]
fn a_regular_expression_does_not_reach_the_parser() {
    // promql-parser compiles each of them, up to 10 MB, and keeps them all
    let one = r#"a=~"(\\pL{50}){10}""#;
    let many = format!("x{{{}}}", vec![one; 100].join(","));
    assert_eq!(skeleton(&format!("x{{{one}}}")), "x{a=\"x\"}");
    assert_eq!(skeleton("{a!~'b', c=~``, d=~'.*', e='~'}"), r#"{a!="x", c="", d="", e="~"}"#);
    in_time(&many, || selector(&many)).unwrap();
}

#[test]
fn deep_trees_are_refused() {
    for (open, close) in [("(", ")"), ("sum(", ")"), ("-", ""), ("1+", ""), ("-(", ")")] {
        let deep = |times: usize| format!("{}1{}", open.repeat(times), close.repeat(times));
        assert!(refused_query(&deep(1000)).contains("more than "), "{open}");
        assert!(selector(&deep(1000)).is_err());
        let _ = query(&deep(DEEPEST));
    }
    query(&format!("1{}", "+1".repeat(MOST_SIGNS))).unwrap();
    query(&format!("{}1", "-".repeat(MOST_SIGNS))).unwrap();
    query(&format!("{}x{}", "sum(".repeat(DEEPEST), ")".repeat(DEEPEST))).unwrap();
    assert!(refused(&"a".repeat(LONGEST + 1)).contains("more than 4096 characters"));
}
