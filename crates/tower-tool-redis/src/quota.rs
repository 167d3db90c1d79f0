//! Shared rate limits.

use std::time::Duration;

use tower_tool_core::store::{BucketKey, Quota, StoreError};

use crate::codec::Reply;
use crate::scripts::TAKE;
use crate::store::Shared;

impl Shared {
    pub(crate) async fn take(&self, bucket: BucketKey<'_>, quota: Quota) -> Result<Option<Duration>, StoreError> {
        // A server tells microseconds; what is between is for the stricter side.
        let each = quota.each().as_nanos().div_ceil(1_000);
        let room = each * u128::from(quota.burst().get());
        let keys = [self.names.bucket(bucket.tenant, &bucket.digest)];
        let texts = [self.time.estimate().to_string(), each.to_string(), room.to_string()];
        let [guess, each, room] = &texts;
        let arguments = [guess.as_bytes(), each.as_bytes(), room.as_bytes()];
        let answer = self.link.run(&TAKE, &keys, &arguments, self.until(), |_| {}).await;
        let answer = answer.map_err(|failure| failure.error)?;
        let reply = Reply::read(answer.value)?;
        self.learn(&reply, answer.sent);
        match reply.status.as_str() {
            "won" => Ok(None),
            "over" => reply.rest.parse().map(|wait| Some(Duration::from_millis(wait))).map_err(StoreError::unavailable),
            _ => Err(StoreError::unavailable("the server gave an answer that no script gives")),
        }
    }
}
