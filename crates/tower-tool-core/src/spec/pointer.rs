//! JSON pointers (RFC 6901), as schemas refer by them and errors name places by them.

/// A name as a part of a pointer (§3).
///
/// ```
/// assert_eq!(tower_tool_core::spec::pointer::escaped("a/b~c"), "a~1b~0c");
/// ```
pub fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// The pointer, or the anchor, that a reference's fragment says, which is percent-encoded (§6).
///
/// ```
/// use tower_tool_core::spec::pointer::from_fragment;
///
/// assert_eq!(from_fragment("/$defs/a%7E1b"), "/$defs/a~1b");
/// assert_eq!(from_fragment("/100%"), "/100%");
/// ```
pub fn from_fragment(fragment: &str) -> String {
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut rest = fragment.bytes();
    while let Some(byte) = rest.next() {
        let mut ahead = rest.clone();
        let mut digit =
            || ahead.next().and_then(|byte| char::from(byte).to_digit(16)).and_then(|d| u8::try_from(d).ok());
        let digits = (byte == b'%').then(|| Some(digit()? * 16 + digit()?)).flatten();
        match digits {
            Some(decoded) => {
                bytes.push(decoded);
                rest = ahead;
            }
            None => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
