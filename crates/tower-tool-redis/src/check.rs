//! What a server's settings mean for what is kept there.

use std::collections::HashMap;
use std::fmt;

use tower_tool_core::store::StoreError;

use crate::link::Node;
use crate::store::Shared;

/// What a server says of itself, by name.
type Settings = HashMap<String, String>;

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
        match self.settings().await {
            Ok(servers) => {
                for settings in servers {
                    judge(&settings, &mut warnings);
                }
            }
            Err(_) => warnings.push(Warning::NotTold),
        }
        for warning in &warnings {
            tracing::warn!(%warning, "the server promises less than could be");
        }
        Ok(warnings)
    }

    /// What every master says of itself.
    async fn settings(&self) -> Result<Vec<Settings>, StoreError> {
        let mut servers: HashMap<String, Settings> = HashMap::new();
        for name in ["maxmemory-policy", "appendonly", "appendfsync", "save"] {
            let mut command = redis::cmd("CONFIG");
            command.arg("GET").arg(name);
            let answer = self.link.answer(&command, Node::Masters, self.until()).await?.value;
            let told = if self.link.is_cluster() {
                redis::from_redis_value(answer)
            } else {
                redis::from_redis_value(answer).map(|settings| HashMap::from([(String::new(), settings)]))
            };
            let told: HashMap<String, Settings> = told.map_err(StoreError::unavailable)?;
            for (server, settings) in told {
                servers.entry(server).or_default().extend(settings);
            }
        }
        Ok(servers.into_values().collect())
    }
}

fn judge(settings: &Settings, warnings: &mut Vec<Warning>) {
    let setting = |name: &str| settings.get(name).map(String::as_str);
    let mut warn = |warning| {
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    };
    match setting("maxmemory-policy") {
        None => warn(Warning::NotTold),
        Some("noeviction") => {}
        Some(policy) => warn(Warning::MayEvict(policy.to_owned())),
    }
    match (setting("appendonly"), setting("appendfsync"), setting("save")) {
        (Some("yes"), Some("always"), _) | (None, ..) => {}
        (Some("yes"), sync, _) => warn(Warning::NotSynced(sync.unwrap_or("unknown").to_owned())),
        (Some(_), _, Some("")) => warn(Warning::NotPersistent),
        (Some(_), _, _) => warn(Warning::NotSynced("without an append-only file".to_owned())),
    }
}
