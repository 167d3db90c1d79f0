//! JSON (RFC 8259) to a value, refusing what readers disagree about.
//!
//! Ours, because no parser at hand tells an integer beyond 64 bits from a float, refuses a key that stands twice, and says where,
//! all at once. It recurses no deeper than [`MAX_DEPTH`].

use serde_json::{Map, Number, Value};

use super::value::is_exact;
use super::{ArgumentsError, Fault, MAX_DEPTH};

pub(super) struct Parser<'a> {
    text: &'a str,
    at: usize,
}

type Parsed<T> = Result<T, ArgumentsError>;

impl<'a> Parser<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    pub(super) fn parse(mut self) -> Parsed<Value> {
        let value = self.value(0)?;
        self.blanks();
        if self.at == self.text.len() { Ok(value) } else { Err(self.fault(Fault::Trailing)) }
    }

    fn value(&mut self, depth: usize) -> Parsed<Value> {
        self.blanks();
        match self.peek() {
            Some(b'{' | b'[') if depth == MAX_DEPTH => Err(self.fault(Fault::TooDeep)),
            Some(b'{') => self.object(depth + 1).map(Value::Object),
            Some(b'[') => self.array(depth + 1).map(Value::Array),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number().map(Value::Number),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            _ => Err(self.unexpected()),
        }
    }

    fn object(&mut self, depth: usize) -> Parsed<Map<String, Value>> {
        self.at += 1;
        let mut members = Map::new();
        self.blanks();
        if self.eat(b'}') {
            return Ok(members);
        }
        loop {
            self.blanks();
            let start = self.at;
            if self.peek() != Some(b'"') {
                return Err(self.unexpected());
            }
            let key = self.string()?;
            if members.contains_key(&key) {
                return Err(ArgumentsError::new(Fault::DuplicateKey, start, String::new()).inside(key));
            }
            self.blanks();
            if !self.eat(b':') {
                return Err(self.unexpected());
            }
            let value = self.value(depth).map_err(|error| error.inside(&key))?;
            members.insert(key, value);
            self.blanks();
            if self.eat(b'}') {
                return Ok(members);
            }
            if !self.eat(b',') {
                return Err(self.unexpected());
            }
        }
    }

    fn array(&mut self, depth: usize) -> Parsed<Vec<Value>> {
        self.at += 1;
        let mut items = Vec::new();
        self.blanks();
        if self.eat(b']') {
            return Ok(items);
        }
        loop {
            let value = self.value(depth).map_err(|error| error.inside(items.len()))?;
            items.push(value);
            self.blanks();
            if self.eat(b']') {
                return Ok(items);
            }
            if !self.eat(b',') {
                return Err(self.unexpected());
            }
        }
    }

    fn string(&mut self) -> Parsed<String> {
        self.at += 1;
        let mut string = String::new();
        loop {
            let rest = self.rest();
            let plain = rest.find(|c: char| matches!(c, '"' | '\\' | '\0'..='\x1f')).unwrap_or(rest.len());
            string.push_str(rest.get(..plain).unwrap_or_default());
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(string);
                }
                Some(b'\\') => string.push(self.escape()?),
                _ => return Err(self.unexpected()),
            }
        }
    }

    fn escape(&mut self) -> Parsed<char> {
        let start = self.at;
        self.at += 1;
        let escaped = match self.peek() {
            Some(b'u') => {
                self.at += 1;
                return self.escaped_character(start);
            }
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            _ => return Err(self.unexpected()),
        };
        self.at += 1;
        Ok(escaped)
    }

    /// A `\u` escape, or two that are one character together (RFC 8259 §7).
    fn escaped_character(&mut self, start: usize) -> Parsed<char> {
        let lone = ArgumentsError::new(Fault::LoneSurrogate, start, String::new());
        let first = self.code_unit()?;
        let code = match first {
            0xd800..=0xdbff => {
                if !(self.eat(b'\\') && self.eat(b'u')) {
                    return Err(if self.peek().is_none() { self.fault(Fault::CutOff) } else { lone });
                }
                let second = self.code_unit()?;
                if !(0xdc00..=0xdfff).contains(&second) {
                    return Err(lone);
                }
                0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00)
            }
            code => code,
        };
        char::from_u32(code).ok_or(lone)
    }

    fn code_unit(&mut self) -> Parsed<u32> {
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16)).ok_or_else(|| self.unexpected())?;
            unit = unit * 16 + digit;
            self.at += 1;
        }
        Ok(unit)
    }

    fn number(&mut self) -> Parsed<Number> {
        let start = self.at;
        self.eat(b'-');
        if !self.eat(b'0') && self.digits() == 0 {
            return Err(self.unexpected());
        }
        let mut is_integer = true;
        if self.eat(b'.') {
            is_integer = false;
            if self.digits() == 0 {
                return Err(self.unexpected());
            }
        }
        if self.eat(b'e') || self.eat(b'E') {
            is_integer = false;
            if !self.eat(b'+') {
                self.eat(b'-');
            }
            if self.digits() == 0 {
                return Err(self.unexpected());
            }
        }
        let text = self.text.get(start..self.at).unwrap_or_default();
        let fault = |fault| ArgumentsError::new(fault, start, String::new());
        if is_integer {
            // `-0` is 0: one number, one spelling.
            return match text.parse::<i64>() {
                Ok(integer) => Ok(integer.into()),
                Err(_) => text.parse::<u64>().map(Into::into).map_err(|_| fault(Fault::IntegerRange)),
            };
        }
        let float: f64 = text.parse().map_err(|_| fault(Fault::Syntax))?;
        if !is_exact(float) {
            return Err(fault(Fault::NumberRange));
        }
        // A zero has no sign here.
        Number::from_f64(if float == 0.0 { 0.0 } else { float }).ok_or_else(|| fault(Fault::NumberRange))
    }

    fn digits(&mut self) -> usize {
        let count = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        self.at += count;
        count
    }

    fn word(&mut self, word: &str, value: Value) -> Parsed<Value> {
        if self.rest().starts_with(word) {
            self.at += word.len();
            return Ok(value);
        }
        // The beginning of it at the very end was cut off.
        if word.starts_with(self.rest()) {
            self.at = self.text.len();
        }
        Err(self.unexpected())
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn blanks(&mut self) {
        let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        self.at += self.rest().bytes().take_while(blank).count();
    }

    fn fault(&self, fault: Fault) -> ArgumentsError {
        ArgumentsError::new(fault, self.at, String::new())
    }

    fn unexpected(&self) -> ArgumentsError {
        self.fault(if self.at >= self.text.len() { Fault::CutOff } else { Fault::Syntax })
    }
}
