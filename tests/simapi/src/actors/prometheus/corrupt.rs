//! What a broken or lying Prometheus answers: each turns a good answer to a query into a bad one.

use serde_json::{Value, json};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corruption {
    /// Every value is not a number.
    NotANumber,
    /// Every value is infinite.
    Infinite,
    /// Each series is there twice, with a label more.
    TwoSeries,
    /// Counters go down and up again.
    Falls,
    /// Every sample is ten minutes older.
    Old,
    /// There is no series.
    Empty,
    /// A string, whatever was asked.
    WrongType,
    /// `status: error` with HTTP 200.
    Refused,
    /// Five megabytes.
    Large,
    /// The page of some proxy.
    Html,
}

impl Corruption {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::NotANumber,
        Self::Infinite,
        Self::TwoSeries,
        Self::Falls,
        Self::Old,
        Self::Empty,
        Self::WrongType,
        Self::Refused,
        Self::Large,
        Self::Html,
    ];

    /// What is answered instead of `status` with `body`. Answers that are not good ones are left as they are.
    pub fn apply(self, status: u16, body: Vec<u8>) -> (u16, Vec<u8>) {
        let good = serde_json::from_slice::<Value>(&body).ok().filter(|value| value.pointer("/data/result").is_some());
        let Some(mut value) = good else { return (status, body) };
        match self {
            Self::NotANumber => each_sample(&mut value, |_, _, value| *value = json!("NaN")),
            Self::Infinite => each_sample(&mut value, |_, _, value| *value = json!("+Inf")),
            Self::TwoSeries => {
                for_result(&mut value, |result| {
                    let mut more = result.clone();
                    for one in &mut more {
                        one["metric"]["replica"] = json!("b");
                    }
                    result.append(&mut more);
                });
            }
            Self::Falls => each_sample(&mut value, |place, _, value| {
                let number: f64 = value.as_str().and_then(|text| text.parse().ok()).unwrap_or(0.0);
                let fallen = if place % 2 == 1 { (number * 0.75).floor() } else { number };
                *value = json!(fallen.to_string());
            }),
            Self::Old => each_sample(&mut value, |_, at, _| *at = json!(at.as_f64().unwrap_or(0.0) - 600.0)),
            Self::Empty => for_result(&mut value, Vec::clear),
            Self::WrongType => value["data"] = json!({ "resultType": "string", "result": [0, "all is well"] }),
            Self::Refused => value = json!({ "status": "error", "errorType": "internal", "error": "out of order" }),
            Self::Large => value["warnings"] = json!(["x".repeat(5 << 20)]),
            Self::Html => {
                let page = "<!DOCTYPE html><html><body><h1>Sign in to continue</h1></body></html>";
                return (200, page.as_bytes().to_vec());
            }
        }
        (status, value.to_string().into_bytes())
    }
}

fn for_result(value: &mut Value, change: impl FnOnce(&mut Vec<Value>)) {
    if value["data"]["resultType"] == "scalar" {
        return;
    }
    if let Some(result) = value.pointer_mut("/data/result").and_then(Value::as_array_mut) {
        change(result);
    }
}

/// Changes the time and the value of every sample; it is also told its place in the series.
fn each_sample(value: &mut Value, mut change: impl FnMut(usize, &mut Value, &mut Value)) {
    let mut pair = |place: usize, pair: &mut Value| {
        if let Some([at, value]) = pair.as_array_mut().map(Vec::as_mut_slice) {
            change(place, at, value);
        }
    };
    if value["data"]["resultType"] == "scalar" {
        pair(0, &mut value["data"]["result"]);
        return;
    }
    for_result(value, |result| {
        for series in result {
            match series.get_mut("values").and_then(Value::as_array_mut) {
                Some(values) => values.iter_mut().enumerate().for_each(|(place, it)| pair(place, it)),
                None => pair(0, &mut series["value"]),
            }
        }
    });
}
