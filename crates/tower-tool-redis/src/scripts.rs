//! What runs in the server. All keys are declared, and no script reads JSON.

use std::sync::LazyLock;

use redis::{Cmd, Script};

/// A script by its text, which is needed where a server does not know it yet.
pub(crate) struct Lua {
    script: LazyLock<(Script, String)>,
}

macro_rules! lua {
    ($name:ident, $file:literal, $docs:literal) => {
        #[doc = $docs]
        pub(crate) static $name: Lua = Lua {
            script: LazyLock::new(|| {
                let text = include_str!($file).replace("--TIME--", include_str!("lua/time.lua"));
                let text = text.replace("--SHARED--", include_str!("lua/shared.lua"));
                let text = text.replace("--CARDS--", include_str!("lua/cards.lua"));
                (Script::new(&text), text)
            }),
        };
    };
}
lua!(GET, "lua/get.lua", "Reads a record.");
lua!(SWAP, "lua/swap.lua", "Compares, and puts the next record in the place of the one that is there.");
lua!(LIST, "lua/list.lua", "Keeps the cards of a tenant, where they have a slot of their own.");
lua!(TAKE, "lua/take.lua", "Takes a call out of a bucket.");

impl Lua {
    /// The command that runs it, by its hash or in full.
    pub(crate) fn command(&self, full: bool, keys: &[String], arguments: &[&[u8]]) -> Cmd {
        let (script, text) = &*self.script;
        let mut command = if full { redis::cmd("EVAL") } else { redis::cmd("EVALSHA") };
        command.arg(if full { text.as_str() } else { script.get_hash() }).arg(keys.len()).arg(keys);
        for argument in arguments {
            command.arg(*argument);
        }
        command
    }
}
