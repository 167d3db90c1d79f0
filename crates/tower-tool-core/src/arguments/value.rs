use serde_json::{Map, Value};

use super::{ArgumentsError, Fault, MAX_DEPTH, kind_of};

/// The first integer whose neighbours a double does not all hold.
const TWO_TO_53: f64 = 9_007_199_254_740_992.0;

/// Whether a double stands for one number only: it has a fraction, or is an integer that doubles hold with all its neighbours.
pub(super) fn is_exact(float: f64) -> bool {
    float.is_finite() && (float.fract() != 0.0 || float.abs() < TWO_TO_53)
}

/// Takes a value that somebody else parsed. `null` is the empty object.
///
/// What went wrong while it was parsed cannot be seen any more; what can is checked: it is an object, it nests no deeper than
/// [`MAX_DEPTH`], and its numbers are exact.
///
/// # Errors
///
/// If it is none of that. However deep the value is, it is taken apart without recursion.
pub fn from_value(value: Value) -> Result<Value, ArgumentsError> {
    match check(&value) {
        Ok(()) if value.is_null() => Ok(Value::Object(Map::new())),
        Ok(()) if value.is_object() => Ok(value),
        Ok(()) => {
            let fault = Fault::NotAnObject(kind_of(&value));
            dismantle(value);
            Err(ArgumentsError::at_root(fault))
        }
        Err(error) => {
            dismantle(value);
            Err(error)
        }
    }
}

/// Checks a value without taking it: how deep it nests, and that its numbers are exact.
///
/// # Errors
///
/// If it nests deeper than [`MAX_DEPTH`], or has a number that is not exact.
pub fn check(value: &Value) -> Result<(), ArgumentsError> {
    let mut open = vec![(value, 0)];
    while let Some((value, depth)) = open.pop() {
        match value {
            Value::Array(_) | Value::Object(_) if depth == MAX_DEPTH => {
                return Err(ArgumentsError::at_root(Fault::TooDeep));
            }
            Value::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(members) => open.extend(members.values().map(|member| (member, depth + 1))),
            Value::Number(number) => {
                let is_integer = number.is_i64() || number.is_u64();
                if !is_integer && !number.as_f64().is_some_and(is_exact) {
                    return Err(ArgumentsError::at_root(Fault::NumberRange));
                }
            }
            Value::Null | Value::Bool(_) | Value::String(_) => {}
        }
    }
    Ok(())
}

/// How deep arrays and objects nest in a value.
pub fn depth_of(value: &Value) -> usize {
    let mut deepest = 0;
    let mut open = vec![(value, 0)];
    while let Some((value, depth)) = open.pop() {
        deepest = deepest.max(depth);
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(members) => open.extend(members.values().map(|member| (member, depth + 1))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    deepest
}

/// Drops a value without recursion, however deep it is. Dropping it plainly could exhaust the thread's stack.
pub fn dismantle(value: Value) {
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(members) => open.extend(members.into_iter().map(|(_, member)| member)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}
