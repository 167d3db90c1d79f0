use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use tower_tool_core::canonical::HashKey;
use tower_tool_core::{Tool, ToolSpec};

use super::registry::{Intents, Registry};
use super::{Dispatch, Toolset};
use crate::redact::Redactor;
use crate::validate::SchemaError;

/// Builds a [`Toolset`].
#[derive(Debug, Default)]
#[must_use = "a builder does nothing until it is built"]
pub struct ToolsetBuilder {
    tools: Vec<Tool>,
    redactor: Redactor,
    intents: Intents,
}

impl ToolsetBuilder {
    /// Adds a tool. The order is kept: it weighs with small models.
    pub fn tool(mut self, tool: Tool) -> Self {
        self.tools.push(tool);
        self
    }

    /// Adds a tool that the model sees and the client executes.
    pub fn declare<I, O>(mut self, spec: &ToolSpec<I, O>) -> Self {
        self.tools.push(Tool::declared(spec));
        self
    }

    /// What masks the texts and details of errors before they leave the toolset.
    pub fn redactor(mut self, redactor: Redactor) -> Self {
        self.redactor = redactor;
        self
    }

    /// Hashes arguments with a key of this deployment, so that whoever sees a hash cannot find the arguments by trying.
    pub fn hash_key(mut self, key: HashKey) -> Self {
        self.intents.hash_key = Some(key);
        self
    }

    /// Makes the run and its step part of the intent: the same call in another step is then another intent. For calls that carry
    /// both, and no key of their own.
    pub fn key_by_step(mut self) -> Self {
        self.intents.by_step = true;
        self
    }

    /// Compiles the schemas and builds the toolset, with no layer around its dispatch yet.
    ///
    /// # Errors
    ///
    /// If two names are equal, or differ only in case or in `-` and `_`; or if a schema cannot be used.
    pub fn build(self) -> Result<Toolset, BuildError> {
        Ok(Toolset {
            registry: Arc::new(Registry::new(self.tools, self.redactor, self.intents)?),
            only: None,
            service: Dispatch::new(),
        })
    }
}

/// A toolset that cannot be built, or selected from.
#[derive(Debug)]
pub struct BuildError {
    message: String,
    source: Option<SchemaError>,
}

impl BuildError {
    pub(super) fn collision(one: &str, other: &str) -> Self {
        let message = if one == other {
            format!("two tools are named `{one}`")
        } else {
            format!("the names `{one}` and `{other}` are too easily taken for each other")
        };
        Self { message, source: None }
    }

    pub(super) fn unknown(name: &str) -> Self {
        Self { message: format!("there is no tool `{}`", name.escape_debug()), source: None }
    }

    pub(super) fn schema(source: SchemaError) -> Self {
        Self { message: format!("`{}` cannot be registered", source.tool()), source: Some(source) }
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for BuildError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| source as &(dyn StdError + 'static))
    }
}
