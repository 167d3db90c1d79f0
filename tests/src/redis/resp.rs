//! As much of Redis's protocol as the harness speaks: one command, one reply.
//!
//! The harness does not use the client that it tests. The protocol: <https://redis.io/docs/latest/develop/reference/protocol-spec/>.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::PATIENCE;

/// A reply that is no error.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// Nothing.
    Nil,
    /// A number.
    Integer(i64),
    /// A string, simple or not.
    Bytes(Vec<u8>),
    /// Several values.
    Array(Vec<Self>),
}

impl Value {
    /// The string, with what is no text replaced; of anything else what a person would write.
    pub fn text(&self) -> String {
        match self {
            Self::Nil => String::new(),
            Self::Integer(number) => number.to_string(),
            Self::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Array(values) => values.iter().map(Self::text).collect::<Vec<_>>().join(" "),
        }
    }

    /// The number, also where it comes as text.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            Self::Bytes(_) => self.text().parse().ok(),
            Self::Nil | Self::Array(_) => None,
        }
    }

    /// The values of an array; none of anything else.
    pub fn values(&self) -> &[Self] {
        match self {
            Self::Array(values) => values,
            Self::Nil | Self::Integer(_) | Self::Bytes(_) => &[],
        }
    }
}

/// A connection to one server.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    ///
    /// If nobody listens there.
    pub async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = in_time("a connection", TcpStream::connect(address)).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends a command and waits for its reply.
    ///
    /// # Errors
    ///
    /// If the reply is an error, does not come, or the connection breaks.
    pub async fn command<A: AsRef<[u8]>>(&mut self, words: &[A]) -> io::Result<Value> {
        in_time("a reply", async {
            self.stream.write_all(&encode(words)).await?;
            self.read().await?.map_err(io::Error::other)
        })
        .await
    }

    /// Reads one reply, which may be an error.
    async fn read(&mut self) -> io::Result<Result<Value, String>> {
        let mut line = String::new();
        self.stream.read_line(&mut line).await?;
        let Some(line) = line.strip_suffix("\r\n") else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let mut chars = line.chars();
        let (kind, rest) = (chars.next(), chars.as_str());
        let number = || rest.parse::<i64>().map_err(|_| unexpected(line));
        Ok(Ok(match kind {
            Some('+') => Value::Bytes(rest.as_bytes().to_owned()),
            Some('-') => return Ok(Err(rest.to_owned())),
            Some(':') => Value::Integer(number()?),
            Some('$') => match usize::try_from(number()?) {
                Ok(length) => {
                    let mut bytes = vec![0; length + 2];
                    self.stream.read_exact(&mut bytes).await?;
                    bytes.truncate(length);
                    Value::Bytes(bytes)
                }
                Err(_) => Value::Nil,
            },
            Some('*') => match usize::try_from(number()?) {
                Ok(length) => {
                    let mut values = Vec::new();
                    for _ in 0..length {
                        // An error inside an array, as of a transaction, is a value among others.
                        let value = Box::pin(self.read()).await?;
                        values.push(value.unwrap_or_else(|error| Value::Bytes(error.into_bytes())));
                    }
                    Value::Array(values)
                }
                Err(_) => Value::Nil,
            },
            _ => return Err(unexpected(line)),
        }))
    }
}

fn unexpected(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not a reply: `{line}`"))
}

async fn in_time<T>(what: &str, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let waited = timeout(PATIENCE, work).await;
    waited.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, format!("waited in vain for {what}")))?
}

fn encode<A: AsRef<[u8]>>(words: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word = word.as_ref();
        bytes.extend(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend(word);
        bytes.extend(b"\r\n");
    }
    bytes
}
