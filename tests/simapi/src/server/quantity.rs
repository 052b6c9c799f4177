//! Quantities in their canonical form, as far as specs use them.

/// `text` as the server writes it back: `0.5` is `500m`, `1000m` is `1`, `1024Mi` is `1Gi`.
pub(super) fn canonical(text: &str) -> String {
    let split = text.find(|one: char| !(one.is_ascii_digit() || matches!(one, '.' | '+' | '-'))).unwrap_or(text.len());
    let (number, suffix) = text.split_at(split);
    const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if let Some(mut power) = BINARY.iter().position(|one| *one == suffix).filter(|power| *power > 0) {
        let Ok(mut value) = number.parse::<i128>() else { return text.to_owned() };
        while value != 0 && value % 1024 == 0 && power + 1 < BINARY.len() {
            (value, power) = (value / 1024, power + 1);
        }
        return format!("{value}{}", BINARY[power]);
    }
    const DECIMAL: [(&str, i32); 10] =
        [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
    let Some((_, mut power)) = DECIMAL.iter().find(|(one, _)| *one == suffix).copied() else { return text.to_owned() };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let Ok(mut value) = format!("{whole}{fraction}").parse::<i128>() else { return text.to_owned() };
    power -= fraction.len() as i32;
    if value == 0 {
        return "0".to_owned();
    }
    while value % 10 == 0 {
        (value, power) = (value / 10, power + 1);
    }
    // up to the next power that has a suffix
    while power.rem_euclid(3) != 0 {
        (value, power) = (value * 10, power - 1);
    }
    match DECIMAL.iter().find(|(_, one)| *one == power) {
        Some((suffix, _)) => format!("{value}{suffix}"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[test]
    fn quantities_are_shortened() {
        for (given, canonical_form) in [
            ("0.5", "500m"),
            ("1000m", "1"),
            ("100m", "100m"),
            ("1024Mi", "1Gi"),
            ("128Mi", "128Mi"),
            ("0", "0"),
            ("2000", "2k"),
            ("1.5", "1500m"),
            ("120", "120"),
        ] {
            assert_eq!(canonical(given), canonical_form, "{given}");
        }
    }
}
