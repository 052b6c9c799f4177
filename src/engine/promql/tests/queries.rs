//! Which types a query may have.

use super::super::{fill, query};
use super::{NAMES, refused_query};

#[test]
fn queries_give_numbers_or_instant_vectors() {
    for text in [
        r#"histogram_quantile(0.99, sum by (le) (rate(x_bucket{service="{{service}}"}[{{window}}])))"#,
        r#"scalar(avg(up{namespace="{{namespace}}"}))"#,
        r#"avg(up{service="{{service}}"})"#,
        "sum(rate(a[5m])) / sum(rate(b[5m]))",
        "sum(rate(a[{{window}}])) / sum(rate(b[{{window}}])) > 0 or vector(0)",
        "max_over_time(sum(rate(a[{{window}}]))[1h:{{window}}])",
        "avg_over_time(a[{{window}}:])",
        "a offset {{window}} - a offset -{{window}}",
        "a @ end() - a @ 1700000000",
        "1",
        "inf",
        "1e999",
        "sum(a > 1e300)",
        "rate(a[300])",
        "rate(a[ # whole\n 5m])",
        r"sum by (pod) (a{b=~`\d+\.`}) * on (pod) group_left (node) c",
        r#"label_replace(a, "b", "$1", "c", "(.*)")"#,
        r#"{"my.metric", service="{{service}}"}"#,
        r#"count({__name__=~"a.*"})"#,
        "quantile(0.9, a)",
        "time() - timestamp(a)",
    ] {
        query(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        query(&fill(text, &NAMES)).expect(text);
    }
    for (text, message) in [
        ("\"a\"", "a string: a query must give a number or an instant vector"),
        ("('a')", "a string: a query must give a number or an instant vector"),
        (
            "a[{{window}}]",
            "a range of samples: put it into a function that makes one value of it, such as rate() or avg_over_time()",
        ),
        ("", "empty: give a query, such as avg(up{service=\"{{service}}\"})"),
        ("sum(ratte(a[5m]))", "at character 5: there is no function ratte"),
        (
            "sum(rate(a))",
            "at character 5: the function rate needs samples of a range: write [{{window}}] after the selector",
        ),
        ("sum(a) sum(b)", "not PromQL: its parts do not fit together; look for a missing operator, comma or function"),
        ("a[2{{window}}]", "not PromQL: its parts do not fit together; look for a missing operator, comma or function"),
        ("a +", "not PromQL: its parts do not fit together; look for a missing operator, comma or function"),
        ("topk(a)", "not PromQL: wrong number of arguments for aggregate expression provided, expected 2, got 1"),
        ("1 > 2", "not PromQL: comparisons between scalars must use BOOL modifier"),
        ("{a=~\".*\"}", "not PromQL: vector selector must contain at least one non-empty matcher"),
        ("{a!~\"b\"}", "not PromQL: vector selector must contain at least one non-empty matcher"),
    ] {
        assert_eq!(refused_query(text), message, "{text}");
    }
}
