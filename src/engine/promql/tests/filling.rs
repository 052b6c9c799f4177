//! Names for placeholders, escaped.

use super::super::{Names, fill};
use super::NAMES;

#[test]
fn names_are_escaped_for_the_string_they_stand_in() {
    for (text, filled) in [
        (r#"x{a="{{service}}"}"#, r#"x{a="ml.bot-blue"}"#),
        (r#"x{a!="{{service}}"}"#, r#"x{a!="ml.bot-blue"}"#),
        (r#"x{a=~"{{service}}"}"#, r#"x{a=~"ml\\.bot-blue"}"#),
        (r"x{a=~'{{service}}-.*'}", r"x{a=~'ml\\.bot-blue-.*'}"),
        (r"x{a!~`{{service}}`}", r"x{a!~`ml\.bot-blue`}"),
        ("x{a =~ # {{service}}\n\"{{service}}\"}", "x{a =~ # {{service}}\n\"ml\\\\.bot-blue\"}"),
        (r#"x{a="\"{{service}}"} # {{service}}"#, r#"x{a="\"ml.bot-blue"} # {{service}}"#),
        ("x{a=\"#{{service}}\"}", "x{a=\"#ml.bot-blue\"}"),
        (r#"rate(x{a=~"{{namespace}}/{{deployment}}"}[{{window}}])"#, r#"rate(x{a=~"shop/ml-bot-blue"}[{{window}}])"#),
        ("{{service}}{a=\"{{service", "{{service}}{a=\"{{service"),
        (r#"x{a="{{foo}}{{service}}"}"#, r#"x{a="{{foo}}ml.bot-blue"}"#),
    ] {
        assert_eq!(fill(text, &NAMES), filled, "{text}");
    }
    let nasty = Names { service: "a`\"'\\\n.", ..NAMES };
    assert_eq!(fill(r#"x{a="{{service}}"}"#, &nasty), r#"x{a="a`\"'\\\n."}"#);
    assert_eq!(fill("x{a='{{service}}'}", &nasty), r#"x{a='a`"\'\\\n.'}"#);
    assert_eq!(fill("x{a=`{{service}}`}", &nasty), "x{a=`a\u{fffd}\"'\\\n.`}");
    assert_eq!(fill("x{a=~`{{service}}`}", &nasty), "x{a=~`a\\x60\"'\\\\\n\\.`}");
}
