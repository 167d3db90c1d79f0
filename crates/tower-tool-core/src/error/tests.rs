use std::collections::HashSet;

use super::*;

#[test]
fn codes_are_unique_screaming_snake_and_read_back() {
    let codes: HashSet<_> = ToolErrorKind::ALL.iter().map(|kind| kind.code()).collect();
    assert_eq!(codes.len(), ToolErrorKind::ALL.len());
    for kind in ToolErrorKind::ALL {
        assert!(kind.code().bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_'), "{kind}");
        assert_eq!(ToolErrorKind::from_code(kind.code()), Some(*kind));
    }
}

/// The published list: a change of it is a change of the wire.
#[test]
fn golden_codes() {
    let lines: Vec<_> = ToolErrorKind::ALL
        .iter()
        .map(|kind| format!("{} {} {} {:?}", kind.code(), kind.category(), kind.http_status(), kind.retry()))
        .collect();
    assert_eq!(lines.join("\n"), include_str!("../../tests/golden/error-codes.txt").trim_end());
}

#[test]
fn the_model_is_not_told_the_operator_text_nor_the_cause() {
    for kind in ToolErrorKind::ALL {
        let error = ToolError::new(*kind, "canary-message").with_source("canary-cause");
        let json = error.to_json().to_string();
        assert!(!json.contains("canary"), "{json}");
        assert!(!error.safe_message().is_empty());
        assert!(!format!("{error:?}").contains("canary-cause"));
    }
}

#[test]
fn an_error_that_a_foreign_layer_boxed_or_wrapped_is_found() {
    #[derive(Debug)]
    struct Wrapped(ToolError);
    impl fmt::Display for Wrapped {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the buffer is closed")
        }
    }
    impl StdError for Wrapped {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            Some(&self.0)
        }
    }
    let boxed: BoxError = Box::new(ToolError::conflict("refunded already"));
    assert_eq!(boxed.into_tool_error().kind(), ToolErrorKind::Conflict);
    let wrapped: BoxError = Box::new(Wrapped(ToolError::conflict("refunded already")));
    assert_eq!(wrapped.into_tool_error().kind(), ToolErrorKind::Conflict);
}

#[test]
fn towers_overload_did_nothing_and_its_timeout_is_left_to_who_knows_the_tool() {
    let overloaded: BoxError = Box::new(tower::load_shed::error::Overloaded::new());
    let error = overloaded.into_tool_error();
    assert_eq!((error.kind(), error.effect()), (ToolErrorKind::Overloaded, Effect::NotDone));

    let elapsed = || -> BoxError { Box::new(tower::timeout::error::Elapsed::new()) };
    let read = ToolSpec::builder("read").description("Reads.").risk(crate::Risk::PublicRead).build().unwrap();
    let write = ToolSpec::builder("write").description("Writes.").build().unwrap();
    let journal = Journal::new();
    assert_eq!(elapsed().into_tool_error().effect(), Effect::MaybeDone, "nobody has seen it yet");
    assert_eq!(elapsed().into_tool_error().seen_by(Some(&read), &journal).kind(), ToolErrorKind::Timeout);
    assert_eq!(elapsed().into_tool_error().seen_by(Some(&write), &journal).effect(), Effect::NotDone);
    journal.note(Note::Dispatched);
    assert_eq!(elapsed().into_tool_error().seen_by(Some(&write), &journal).kind(), ToolErrorKind::UnknownOutcome);
    journal.note(Note::Claimed { execution: ExecutionId::random().unwrap(), fence: 1, attempt: 1 });
    let error = elapsed().into_tool_error().seen_by(Some(&write), &journal);
    assert_eq!(error.kind(), ToolErrorKind::InProgress);
    assert!(error.details().contains_key("execution_id"));
}

#[test]
fn a_time_limit_around_what_is_under_way_does_not_say_that_nothing_was_done() {
    let write = ToolSpec::builder("write").description("Writes.").build().unwrap();
    let execution = ExecutionId::random().unwrap();
    for (note, known) in [
        (Note::UnderWay(None), false),
        (Note::UnderWay(Some(execution)), true),
        (Note::Joined(execution), true),
        (Note::Replayed(execution), true),
    ] {
        let journal = Journal::new();
        journal.note(note);
        let elapsed: BoxError = Box::new(tower::timeout::error::Elapsed::new());
        let error = elapsed.into_tool_error().seen_by(Some(&write), &journal);
        assert_eq!((error.kind(), error.effect()), (ToolErrorKind::InProgress, Effect::MaybeDone));
        assert_eq!(error.details().contains_key("execution_id"), known);
        let foreign: BoxError = "foreign".into();
        let error = foreign.into_tool_error().seen_by(Some(&write), &journal);
        assert_eq!((error.kind(), error.effect()), (ToolErrorKind::UnknownOutcome, Effect::MaybeDone));
    }
}

#[test]
fn nobody_around_a_tool_that_was_reached_can_say_that_nothing_was_done() {
    let foreign = || LayerError::into_tool_error(BoxError::from("foreign"));
    let clean = || ToolError::conflict("closed").with_retry_after(Duration::from_secs(1));
    for error in [foreign(), clean()] {
        let seen = error.seen_in_execution(true);
        assert_eq!((seen.kind(), seen.effect()), (ToolErrorKind::UnknownOutcome, Effect::MaybeDone));
        assert_eq!((seen.safe_message().contains("closed"), seen.retry_after()), (false, None));
    }
    assert_eq!(foreign().seen_in_execution(false).effect(), Effect::NotDone);
    let seen = clean().seen_in_execution(false);
    assert_eq!((seen.kind(), seen.effect()), (ToolErrorKind::Conflict, Effect::NotDone));
    for effect in [Effect::Done, Effect::MaybeDone] {
        let seen = clean().done(effect).seen_in_execution(true);
        assert_eq!((seen.kind(), seen.effect()), (ToolErrorKind::Conflict, effect));
    }
}

#[test]
fn an_error_chain_says_nothing_twice() {
    let error = ToolError::not_done(std::io::Error::other("disk gone"));
    let source = error.source().unwrap().to_string();
    assert_eq!(source, "disk gone");
    assert!(!error.to_string().contains(&source));
}
