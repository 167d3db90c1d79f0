use serde_json::json;

use super::*;

/// A small generator: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u32) -> u32 {
        u32::try_from(self.next() % u64::from(bound)).unwrap()
    }

    /// Characters of every length in UTF-8 and UTF-16, those around the surrogates, and those that are escaped.
    fn character(&mut self) -> char {
        let ranges = [0..0x20, 0x20..0x7f, 0x22..0x23, 0x5c..0x5d, 0x7f..0x800, 0x800..0x1_0000, 0x1_0000..0x11_0000];
        let edges = ['\u{d7ff}', '\u{e000}', '\u{fb33}', '\u{ffff}', '\u{1_0000}', '\u{1f600}', '\u{2028}', '/', '"'];
        let kind = usize::try_from(self.below(8)).unwrap();
        let drawn = ranges.get(kind).map(|range| range.start + self.below(range.end - range.start));
        let edge = edges[usize::try_from(self.below(9)).unwrap()];
        drawn.and_then(char::from_u32).unwrap_or(edge)
    }

    fn text(&mut self) -> String {
        (0..self.below(5)).map(|_| self.character()).collect()
    }

    /// Any double, and integers that a double holds with all their neighbours.
    fn number(&mut self) -> Value {
        match self.below(6) {
            0 => json!(self.below(1_000)),
            1 => json!(i64::try_from(self.next() >> 11).unwrap()),
            2 => json!(-i64::try_from(self.next() >> 11).unwrap()),
            3 => json!(f64::from(self.below(2_000)) / 8.0 - 100.0),
            4 => json!([-0.0, 1e21, 1e-6, 1e-7, 5e-324, f64::MAX][usize::try_from(self.below(6)).unwrap()]),
            _ => json!(f64::from_bits(self.next())),
        }
    }

    fn document(&mut self, depth: u32) -> Value {
        match self.below(if depth == 0 { 5 } else { 9 }) {
            0 => Value::Null,
            1 => json!(self.below(2) == 0),
            2 | 3 => self.number(),
            4 => Value::String(self.text()),
            5 | 6 => (0..self.below(5)).map(|_| self.document(depth - 1)).collect(),
            _ => (0..self.below(6)).map(|_| (self.text(), self.document(depth - 1))).collect(),
        }
    }
}

#[test]
fn equal_numbers_are_written_equally() {
    for text in ["1", "1.0", "1e0", "10e-1"] {
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(to_string(&value), "1", "{text}");
    }
    for text in ["0", "-0", "-0.0", "0e5"] {
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(to_string(&value), "0", "{text}");
    }
}

#[test]
fn integers_keep_every_digit() {
    assert_eq!(to_string(&json!(u64::MAX)), "18446744073709551615");
    assert_eq!(to_string(&json!(i64::MIN)), "-9223372036854775808");
}

#[test]
fn doubles_are_written_as_ecmascript_does() {
    for (float, text) in [
        (333_333_333.333_333_3, "333333333.3333333"),
        (1e30, "1e+30"),
        (4.5, "4.5"),
        (2e-3, "0.002"),
        (1e-27, "1e-27"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (-1.5e-10, "-1.5e-10"),
        (123_456.789, "123456.789"),
        (f64::MAX, "1.7976931348623157e+308"),
        (5e-324, "5e-324"),
        (-f64::MAX, "-1.7976931348623157e+308"),
    ] {
        assert_eq!(to_string(&json!(float)), text);
    }
}

/// Random doubles and integers: the text reads back to the very number, so no two numbers share one, and every spelling of a
/// number gets the same.
#[test]
fn no_two_numbers_agree_and_no_two_spellings_of_one_differ() {
    let mut random = Random(7);
    for _ in 0..50_000 {
        let bits = random.next();
        assert_eq!(to_string(&json!(bits)).parse::<u64>().unwrap(), bits);
        let signed = i64::from_ne_bytes(bits.to_ne_bytes());
        assert_eq!(to_string(&json!(signed)).parse::<i64>().unwrap(), signed);
        let float = f64::from_bits(bits);
        if !float.is_finite() {
            continue;
        }
        let text = to_string(&json!(float));
        assert_eq!(text.parse::<f64>().unwrap().to_bits(), (float + 0.0).to_bits(), "{text}");
        for spelling in [format!("{float:e}"), format!("{float:?}"), format!("{float:.340}")] {
            let value: Value = serde_json::from_str(&spelling).unwrap();
            assert_eq!(to_string(&value), text, "{spelling}");
        }
    }
    let near: Vec<String> = [1_u64 << 53, (1 << 53) + 1, u64::MAX - 1, u64::MAX].map(|n| to_string(&json!(n))).into();
    assert_eq!(near, ["9007199254740992", "9007199254740993", "18446744073709551614", "18446744073709551615"]);
}

#[test]
fn keys_are_sorted_by_utf16_code_units() {
    // RFC 8785 §3.2.3: the emoji's first code unit is a surrogate, D83D, and stands before FB33.
    let value = json!({ "\u{FB33}": 1, "\u{1F600}": 2, "a": 3, "": 4 });
    assert_eq!(to_string(&value), "{\"\":4,\"a\":3,\"\u{1F600}\":2,\"\u{FB33}\":1}");
}

#[test]
fn strings_are_escaped_as_little_as_the_rfc_allows() {
    assert_eq!(to_string(&json!("\u{8}\t\n\u{c}\r\"\\/\u{7f}€\u{0}")), "\"\\b\\t\\n\\f\\r\\\"\\\\/\u{7f}€\\u0000\"");
}

/// The same document with the members of its objects in another order, as far as a `Value` keeps one.
fn reversed(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(reversed).collect(),
        Value::Object(members) => members.iter().rev().map(|(key, member)| (key.clone(), reversed(member))).collect(),
        other => other.clone(),
    }
}

/// rurban/Cpanel-JSON-XS#248, evik42/serde-json-canonicalizer#1: writers that sorted by code point disagreed with those that sort
/// as the RFC says. Two that nobody wrote together agree here.
#[test]
fn another_implementation_writes_the_same_where_no_integer_is_large() {
    let mut random = Random(21);
    for _ in 0..20_000 {
        let document = random.document(4);
        let text = to_string(&document);
        assert_eq!(text, serde_json_canonicalizer::to_string(&document).unwrap());
        assert_eq!(text, to_string(&reversed(&document)));
        assert_eq!(text, to_string(&serde_json::from_str(&text).unwrap()));
    }
}

/// The one difference to RFC 8785, and the reason for it: rounded to doubles, these would be one call.
#[test]
fn another_implementation_rounds_integers_that_are_kept_here() {
    let (one, other) = (json!(9_007_199_254_740_993_u64), json!(9_007_199_254_740_992_u64));
    assert_eq!(
        serde_json_canonicalizer::to_string(&one).unwrap(),
        serde_json_canonicalizer::to_string(&other).unwrap()
    );
    assert_ne!(to_string(&one), to_string(&other));
}

/// ECMA-262 `Number::toString` over the digits that the standard library finds: both implementations above take theirs from one crate.
///
/// Where two shortest texts are equally near, ECMA-262 takes the even one, and the standard library the larger.
fn by_the_standard_library(float: f64) -> String {
    let text = format!("{float:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap();
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let mut digits = mantissa.replace('.', "");
    let longer = format!("{:.*e}", digits.len() + 30, float.abs()).replace('.', "");
    let (kept, rest) = longer.split_at(digits.len());
    let is_tie = rest.starts_with("5000000000000000000000000000000e");
    if is_tie && kept.ends_with(['0', '2', '4', '6', '8']) {
        kept.clone_into(&mut digits);
    }
    let (count, point) = (i32::try_from(digits.len()).unwrap(), exponent.parse::<i32>().unwrap() + 1);
    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap());
    let number = if float == 0.0 {
        return "0".to_owned();
    } else if (count..=21).contains(&point) {
        format!("{digits}{}", zeros(point - count))
    } else if (1..=21).contains(&point) {
        let (whole, fraction) = digits.split_at(usize::try_from(point).unwrap());
        format!("{whole}.{fraction}")
    } else if (-5..=0).contains(&point) {
        format!("0.{}{digits}", zeros(-point))
    } else {
        let (first, rest) = digits.split_at(1);
        let dot = if rest.is_empty() { "" } else { "." };
        format!("{first}{dot}{rest}e{}{}", if point > 0 { "+" } else { "" }, point - 1)
    };
    format!("{sign}{number}")
}

#[test]
fn doubles_have_the_digits_that_the_standard_library_finds() {
    let mut random = Random(8785);
    let edges =
        [0.0, -0.0, 1e21, 999_999_999_999_999_900_000.0, 1e-6, 1e-7, 5e-324, 2e-308, f64::MAX, f64::MIN_POSITIVE];
    let drawn = (0..200_000).map(|_| f64::from_bits(random.next())).filter(|float| float.is_finite());
    for float in edges.into_iter().chain(drawn) {
        assert_eq!(to_string(&json!(float)), by_the_standard_library(float), "{:x}", float.to_bits());
    }
}
