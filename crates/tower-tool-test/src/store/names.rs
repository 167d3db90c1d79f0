use std::collections::BTreeSet;

/// Text that is special somewhere: to JSON, SQL, patterns, terminals, C or a serialisation of one's own.
pub(super) const TEXTS: &[&str] = &[
    "",
    " ",
    "\0",
    "a\0b",
    "\u{1}\u{1f}\u{7f}\u{80}",
    "\r\n\t",
    "'; DROP TABLE records; --",
    "\"\\/`$(x)${x}{{x}}",
    "%s%d%n _% *?[a-z]",
    "Straße Å A\u{30a} ﬁ",
    "\u{200b}\u{202e}\u{feff}\u{fffd}\u{ffff}",
    "日本語 🦀👩‍👩‍👧 \u{10ffff}",
    "null",
    "1e5",
    "-9223372036854775808",
];

/// Names that a store might take for one another, or for something else than a name.
pub(super) fn names() -> Vec<String> {
    let alike = [
        "acme",
        "Acme",
        "acme ",
        " acme",
        "acme\0",
        "acme\n",
        "acm_",
        "acm%",
        "acm*",
        "ac?e",
        "[a]cme",
        "{acme}",
        "acme}",
        "{",
        "}",
        "*",
        "%",
        "/",
        "..",
        "%61cme",
        "acm\u{e9}",
        "acme\u{301}",
        "äcme",
        "ａcme",
    ];
    let long = "n".repeat(4_096);
    let long = ["x", "y"].map(|last| format!("{long}{last}"));
    let names = alike.into_iter().chain(TEXTS.iter().copied()).map(str::to_owned).chain(long);
    names.collect::<BTreeSet<_>>().into_iter().collect()
}
