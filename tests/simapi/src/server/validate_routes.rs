//! The rules of what routes traffic: Ingresses, Services and their EndpointSlices.

use serde_json::Value;

use super::errors::Fault;
use super::meta::{dns_label, labels, service_name, subdomain, wildcard};
use super::validate::{list, text};

pub(super) fn ingress(object: &Value, new: bool, faults: &mut Vec<Fault>) {
    let spec = &object["spec"];
    let rules = list(spec, "rules");
    if rules.is_empty() && spec.get("defaultBackend").is_none() {
        faults.push(Fault::invalid("spec", &Value::Null, "either `defaultBackend` or `rules` must be specified"));
    }
    if let Some(default) = spec.get("defaultBackend") {
        backend(default, "spec.defaultBackend", faults);
    }
    for (at, rule) in rules.iter().enumerate() {
        let path = format!("spec.rules[{at}]");
        let host = text(rule, "host");
        if host.parse::<std::net::IpAddr>().is_ok() {
            let why = "must be a DNS name, not an IP address";
            faults.push(Fault::invalid(format!("{path}.host"), &host.into(), why));
        }
        let why = match host {
            "" => Vec::new(),
            host if host.contains('*') => wildcard(host),
            host => subdomain(host),
        };
        faults.extend(why.iter().map(|why| Fault::invalid(format!("{path}.host"), &host.into(), why)));
        let Some(http) = rule.get("http") else { continue };
        if list(http, "paths").is_empty() {
            faults.push(Fault::required(format!("{path}.http.paths"), ""));
        }
        for (at, one) in list(http, "paths").iter().enumerate() {
            http_path(one, &format!("{path}.http.paths[{at}]"), faults);
        }
    }
    for (at, tls) in list(spec, "tls").iter().enumerate() {
        for (host_at, host) in list(tls, "hosts").iter().enumerate() {
            let name = host.as_str().unwrap_or_default();
            let why = if name.contains('*') { wildcard(name) } else { subdomain(name) };
            let place = format!("spec.tls[{at}].hosts[{host_at}]");
            faults.extend(why.iter().map(|why| Fault::invalid(&place, host, why)));
        }
        let secret = text(tls, "secretName");
        if !secret.is_empty() {
            let place = format!("spec.tls[{at}].secretName");
            faults.extend(subdomain(secret).iter().map(|why| Fault::invalid(&place, &secret.into(), why)));
        }
    }
    if let Some(class) = spec.get("ingressClassName") {
        let why = subdomain(class.as_str().unwrap_or_default());
        faults.extend(why.iter().map(|why| Fault::invalid("spec.ingressClassName", class, why)));
        let annotation = &object["metadata"]["annotations"]["kubernetes.io/ingress.class"];
        if new && annotation.is_string() && annotation != class {
            let why = "must match `ingressClassName` when both are specified";
            faults.push(Fault::invalid("annotations.kubernetes.io/ingress.class", annotation, why));
        }
    }
}

fn http_path(one: &Value, path: &str, faults: &mut Vec<Fault>) {
    let place = format!("{path}.path");
    let value: Value = text(one, "path").into();
    let absolute = text(one, "path").starts_with('/');
    match one["pathType"].as_str() {
        None => {
            faults.push(Fault::required(format!("{path}.pathType"), "pathType must be specified"));
            return;
        }
        Some("Exact" | "Prefix") => {
            if !absolute {
                faults.push(Fault::invalid(&place, &value, "must be an absolute path"));
            }
            for bad in ["//", "/./", "/../", "%2f", "%2F"] {
                if text(one, "path").contains(bad) {
                    faults.push(Fault::invalid(&place, &value, &format!("must not contain '{bad}'")));
                }
            }
            for bad in ["/..", "/."] {
                if text(one, "path").ends_with(bad) {
                    faults.push(Fault::invalid(&place, &value, &format!("cannot end with '{bad}'")));
                }
            }
        }
        Some("ImplementationSpecific") => {
            if !text(one, "path").is_empty() && !absolute {
                faults.push(Fault::invalid(&place, &value, "must be an absolute path"));
            }
        }
        _ => {
            let allowed = ["Exact", "ImplementationSpecific", "Prefix"].map(ToOwned::to_owned);
            faults.push(Fault::not_supported(format!("{path}.pathType"), &one["pathType"], &allowed));
        }
    }
    backend(&one["backend"], &format!("{path}.backend"), faults);
}

fn backend(backend: &Value, path: &str, faults: &mut Vec<Fault>) {
    let nothing: Value = "".into();
    let service = match (backend.get("service"), backend.get("resource")) {
        (Some(_), Some(_)) => {
            return faults.push(Fault::invalid(path, &nothing, "cannot set both resource and service backends"));
        }
        (None, Some(_)) => return,
        (None, None) => return faults.push(Fault::invalid(path, &nothing, "resource or service backend is required")),
        (Some(service), None) => service,
    };
    let name = text(service, "name");
    if name.is_empty() {
        faults.push(Fault::required(format!("{path}.service.name"), ""));
    } else {
        let why = service_name(name);
        faults.extend(why.iter().map(|why| Fault::invalid(format!("{path}.service.name"), &name.into(), why)));
    }
    let (name, number) = (text(&service["port"], "name"), service["port"]["number"].as_i64().unwrap_or_default());
    if !name.is_empty() && number != 0 {
        faults.push(Fault::invalid(path, &nothing, "cannot set both port name & port number"));
    } else if number != 0 {
        if !(1..=65_535).contains(&number) {
            let why = "must be between 1 and 65535, inclusive";
            faults.push(Fault::invalid(format!("{path}.service.port.number"), &number.into(), why));
        }
    } else if name.is_empty() {
        faults.push(Fault::required(path, "port name or number is required"));
    }
}

pub(super) fn service(spec: &Value, faults: &mut Vec<Fault>) {
    let kind = text(spec, "type");
    let ports = list(spec, "ports");
    if ports.is_empty() && kind != "ExternalName" && text(spec, "clusterIP") != "None" {
        faults.push(Fault::required("spec.ports", ""));
    }
    let mut names = Vec::new();
    for (at, port) in ports.iter().enumerate() {
        let path = format!("spec.ports[{at}]");
        let name = text(port, "name");
        if name.is_empty() && ports.len() > 1 {
            faults.push(Fault::required(format!("{path}.name"), ""));
        } else if !name.is_empty() {
            faults.extend(dns_label(name).iter().map(|why| Fault::invalid(format!("{path}.name"), &name.into(), why)));
            if names.contains(&name) {
                faults.push(Fault::duplicate(format!("{path}.name"), &name.into()));
            }
            names.push(name);
        }
        let number = port["port"].as_i64().unwrap_or_default();
        if !(1..=65_535).contains(&number) {
            let why = "must be between 1 and 65535, inclusive";
            faults.push(Fault::invalid(format!("{path}.port"), &number.into(), why));
        }
        if let Some(name) = port["targetPort"].as_str() {
            let place = format!("{path}.targetPort");
            if !name.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-') {
                let why = "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)";
                faults.push(Fault::invalid(&place, &port["targetPort"], why));
            }
            if !name.chars().any(|it| it.is_ascii_lowercase()) {
                let why = "must contain at least one letter (a-z)";
                faults.push(Fault::invalid(&place, &port["targetPort"], why));
            }
        }
    }
    labels(&spec["selector"], "spec.selector", faults);
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    if !kinds.contains(&kind) {
        let allowed = kinds.map(ToOwned::to_owned);
        faults.push(Fault::not_supported("spec.type", &kind.into(), &allowed));
    }
}

pub(super) fn slice(object: &Value, faults: &mut Vec<Fault>) {
    let kind = text(object, "addressType");
    if kind.is_empty() {
        return faults.push(Fault::required("addressType", ""));
    }
    for (at, endpoint) in list(object, "endpoints").iter().enumerate() {
        let path = format!("endpoints[{at}].addresses");
        if list(endpoint, "addresses").is_empty() {
            faults.push(Fault::required(&path, "must contain at least 1 address"));
        }
        for (at, address) in list(endpoint, "addresses").iter().enumerate() {
            if kind != "FQDN" && address.as_str().unwrap_or_default().parse::<std::net::IpAddr>().is_err() {
                let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
                faults.push(Fault::invalid(format!("{path}[{at}]"), address, why));
            }
        }
    }
}
