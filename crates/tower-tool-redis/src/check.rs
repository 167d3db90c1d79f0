//! What a server's settings mean for what is kept there.

use std::collections::HashMap;
use std::fmt;

use tower_tool_core::store::StoreError;

use crate::link::Node;
use crate::store::Shared;

/// Something about the server by which less is promised than could be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// With this `maxmemory-policy` the server forgets records when its memory is full: what was done may be done again.
    MayEvict(String),
    /// Nothing is written to a disk: a server that restarts has forgotten everything.
    NotPersistent,
    /// With this `appendfsync`, or without an append-only file, a crash of the machine takes back what was acknowledged last.
    NotSynced(String),
    /// The server does not say how it is set up, as with many that somebody else runs.
    NotTold,
    /// The server does not tell the time: a command that was on its way for long cannot be told from one that was not.
    NoTime,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MayEvict(policy) => {
                write!(f, "`maxmemory-policy` is `{policy}`, not `noeviction`: records may vanish")
            }
            Self::NotPersistent => f.write_str("nothing is persistent: records vanish when the server restarts"),
            Self::NotSynced(sync) => {
                write!(f, "`appendfsync` is `{sync}`, not `always`: a crash may lose the last records")
            }
            Self::NotTold => f.write_str("`CONFIG GET` is refused: whether records may vanish is not known"),
            Self::NoTime => f.write_str("`TIME` is refused: commands that come too late are run"),
        }
    }
}

impl Shared {
    pub(crate) async fn warnings(&self) -> Result<Vec<Warning>, StoreError> {
        let mut warnings = Vec::new();
        if !self.tells_time().await? {
            warnings.push(Warning::NoTime);
        }
        let mut settings = HashMap::new();
        for name in ["maxmemory-policy", "appendonly", "appendfsync", "save"] {
            let mut command = redis::cmd("CONFIG");
            command.arg("GET").arg(name);
            let got: Result<HashMap<String, String>, _> =
                self.link.command(&command, Node::MasterOf(name), self.until()).await;
            settings.extend(got.unwrap_or_default());
        }
        let setting = |name: &str| settings.get(name).map(String::as_str);
        match setting("maxmemory-policy") {
            None => warnings.push(Warning::NotTold),
            Some("noeviction") => {}
            Some(policy) => warnings.push(Warning::MayEvict(policy.to_owned())),
        }
        match (setting("appendonly"), setting("appendfsync"), setting("save")) {
            (Some("yes"), Some("always"), _) | (None, ..) => {}
            (Some("yes"), sync, _) => warnings.push(Warning::NotSynced(sync.unwrap_or("unknown").to_owned())),
            (Some(_), _, Some("")) => warnings.push(Warning::NotPersistent),
            (Some(_), _, _) => warnings.push(Warning::NotSynced("without an append-only file".to_owned())),
        }
        for warning in &warnings {
            tracing::warn!(%warning, "the server promises less than could be");
        }
        Ok(warnings)
    }
}
