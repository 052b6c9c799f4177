//! Answers in the form of Prometheus' HTTP API.

use std::io::Write as _;

/// A string.
pub fn string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', byte]),
            b'\n' => out.extend(b"\\n"),
            control if control < b' ' => {
                let _ = write!(out, "\\u{control:04x}");
            }
            other => out.push(other),
        }
    }
    out.push(b'"');
}

/// Labels.
pub fn labels<'a>(out: &mut Vec<u8>, labels: impl Iterator<Item = (&'a str, &'a str)>) {
    out.push(b'{');
    for (place, (name, value)) in labels.enumerate() {
        if place > 0 {
            out.push(b',');
        }
        string(out, name);
        out.push(b':');
        string(out, value);
    }
    out.push(b'}');
}

/// A whole number: most values are, and formatting is most of the work.
fn whole(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0_u8; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[first..]);
}

/// A time: seconds with up to three decimals.
pub fn time(out: &mut Vec<u8>, milliseconds: u64) {
    whole(out, milliseconds / 1000);
    let rest = milliseconds % 1000;
    if rest > 0 {
        out.push(b'.');
        out.extend([rest / 100, rest / 10 % 10, rest % 10].map(|digit| b'0' + digit as u8));
    }
}

/// A value, in quotes: as Go's `strconv.FormatFloat(value, 'f', -1, 64)`, very large and very small ones with an exponent.
pub fn value(out: &mut Vec<u8>, value: f64) {
    out.push(b'"');
    let size = value.abs();
    if value.is_nan() {
        out.extend(b"NaN");
    } else if value.is_infinite() {
        out.extend(if value > 0.0 { b"+Inf" } else { b"-Inf" });
    } else if value.fract() == 0.0 && (0.0..1e15).contains(&value) && value.is_sign_positive() {
        whole(out, value as u64);
    } else if size < 1e21 && (size >= 1e-6 || size == 0.0) {
        let _ = write!(out, "{value}");
    } else {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "{digits}e{sign}{:02}", exponent.abs());
    }
    out.push(b'"');
}

/// A time with a value.
pub fn sample(out: &mut Vec<u8>, at: u64, it: f64) {
    out.push(b'[');
    time(out, at);
    out.push(b',');
    value(out, it);
    out.push(b']');
}

/// An answer with an error in it.
pub fn error(kind: &str, text: &str) -> Vec<u8> {
    let mut out = format!("{{\"status\":\"error\",\"errorType\":\"{kind}\",\"error\":").into_bytes();
    string(&mut out, text);
    out.push(b'}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_prometheus_writes_them() {
        let text = |it| {
            let mut out = Vec::new();
            value(&mut out, it);
            String::from_utf8(out).unwrap()
        };
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (17.0, "17"),
            (0.125, "0.125"),
            (-3.5, "-3.5"),
            (1e15, "1000000000000000"),
            (1e21, "1e+21"),
            (2.5e-7, "2.5e-07"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
        ];
        for (number, wanted) in cases {
            assert_eq!(text(number), format!("\"{wanted}\""));
        }
        let at = |milliseconds| {
            let mut out = Vec::new();
            time(&mut out, milliseconds);
            String::from_utf8(out).unwrap()
        };
        assert_eq!([at(7000), at(7005), at(7050), at(7500)], ["7", "7.005", "7.050", "7.500"]);
    }
}
