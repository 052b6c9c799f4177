//! What is a plain selector, and what is said of what is none.

use super::super::plain::{AT_TIME, NUMBER, OFFSET, RANGE, STRING, SUBQUERY};
use super::super::{Selector, fill, selector};
use super::{NAMES, refused};

#[test]
fn selectors_of_real_exporters_are_taken() {
    for (text, name) in [
        ("up", "up"),
        (" http_requests_total # all of them\n", "http_requests_total"),
        (r#"http_requests_total{namespace="{{namespace}}",service="{{service}}",code=~"5.."}"#, "http_requests_total"),
        (
            r#"traefik_service_requests_total{service=~"ml-bot-blue-.*@kubernetes(ingressnginx|)"}"#,
            "traefik_service_requests_total",
        ),
        (
            r#"traefik_service_requests_total{service=~"{{namespace}}-{{service}}-.*@kubernetescrd",code!~"5.."}"#,
            "traefik_service_requests_total",
        ),
        (
            concat!(
                r#"nginx_ingress_controller_requests{exported_namespace="{{namespace}}","#,
                r#"exported_service="{{service}}",status=~"5.."}"#
            ),
            "nginx_ingress_controller_requests",
        ),
        (
            r#"vllm:time_to_first_token_seconds_bucket{namespace="{{namespace}}",service="{{service}}"}"#,
            "vllm:time_to_first_token_seconds_bucket",
        ),
        (r#"vllm:request_success_total{finished_reason="abort"}"#, "vllm:request_success_total"),
        (
            r#"llamacpp:tokens_predicted_total{pod=~"{{deployment}}-[0-9a-f]+-[0-9a-z]{5}",}"#,
            "llamacpp:tokens_predicted_total",
        ),
        (
            r#"istio_requests_total{destination_workload="{{deployment}}",response_code=~`5\d\d`}"#,
            "istio_requests_total",
        ),
        (r#"{__name__="http_requests_total", service='{{service}}'}"#, "http_requests_total"),
        (r#"{service="{{service}}", __name__="http_requests_total"}"#, "http_requests_total"),
        // Prometheus 3
        (r#"{"my.metric", service="{{service}}"}"#, "my.metric"),
        (r#"{'größe', "service.name"="{{service}}"}"#, "größe"),
        ("sum{service=\"{{service}}\"}", "sum"),
        ("job:requests:rate5m", "job:requests:rate5m"),
        (":odd{a=\"b\"}", ":odd"),
        ("x{or=\"a\",on=\"b\",by=\"c\",offset=\"d\"}", "x"),
        ("x {\n  a = \"b\", # {{foo}}\n  c != 'd'\n}", "x"),
    ] {
        assert_eq!(selector(text), Ok(Selector { metric_name: Some(name.to_owned()) }), "{text}");
        selector(&fill(text, &NAMES)).expect(text);
    }
    assert_eq!(selector(r#"{__name__=~"http_.*_total",a="b"}"#), Ok(Selector { metric_name: None }));
}

#[test]
fn what_is_no_plain_selector_is_refused_with_what_to_do() {
    let expression = "an expression: give the counter itself, without rate() or sum(); its samples are counted exactly";
    for (text, at) in [
        ("rate(x[5m])", 1),
        ("sum by (le) (x)", 5),
        ("sum(x)", 1),
        ("a / b", 3),
        ("(x)", 1),
        ("-x", 1),
        ("x > 0", 3),
        ("a and b", 3),
        ("1 - x", 1),
        ("x{} y", 5),
        ("time()", 1),
        ("x == bool 1", 3),
        ("x \"a\"", 3),
    ] {
        assert_eq!(refused(text), format!("at character {at}: {expression}"), "{text}");
    }
    for (text, message) in [
        ("x[5m]", format!("at character 2: {RANGE}")),
        ("x{a=\"b\"}[5m]", format!("at character 9: {RANGE}")),
        (
            "x[{{service}}]",
            "at character 3: {{service}} stands only in the quoted value of a label, as in service=\"{{service}}\""
                .to_owned(),
        ),
        ("x[5m:1m]", format!("at character 2: {SUBQUERY}")),
        ("x[5m:]", format!("at character 2: {SUBQUERY}")),
        ("x offset 5m", format!("at character 3: {OFFSET}")),
        ("x OFFSET -5m", format!("at character 3: {OFFSET}")),
        ("x{} @ 1", format!("at character 5: {AT_TIME}")),
        ("x @ end()", format!("at character 3: {AT_TIME}")),
        ("5", format!("at character 1: {NUMBER}")),
        ("5m", format!("at character 1: {NUMBER}")),
        ("inf", NUMBER.to_owned()),
        ("\"x\"", format!("at character 1: {STRING}")),
        ("'x'{a=\"b\"}", format!("at character 1: {STRING}")),
        ("", "empty: give the selector of a counter, such as http_requests_total".to_owned()),
        (" \n# x\n", "empty: give the selector of a counter, such as http_requests_total".to_owned()),
    ] {
        assert_eq!(refused(text), message, "{text}");
    }
}

#[test]
fn a_selector_has_one_name_of_a_metric() {
    for text in ["{}", "{a=\"b\"}", "{__name__!=\"x\",a=\"b\"}", "{__name__=\"\",a=\"b\"}", "{\"a\"=\"b\"}"] {
        assert_eq!(refused(text), "the name of a metric is missing: begin with it, as in http_requests_total{...}");
    }
    for text in ["x{__name__=\"y\"}", "x{__name__!=\"\"}", "x{\"y\"}"] {
        assert_eq!(refused(text), "at character 3: the name of the metric is given a second time here");
    }
    assert_eq!(refused(r#"{"a","b"}"#), "at character 6: the name of the metric is given a second time here");
}
