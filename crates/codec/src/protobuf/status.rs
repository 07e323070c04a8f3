//! Errors, as a body and as the last frame of a watch.

use std::borrow::Cow;

use std::sync::LazyLock;

use bytes::Bytes;

use crate::CodecError;
use informerd_meta::{Status, StatusCause, StatusDetails};

use super::envelope::{Envelope, Lead};
use super::wire::{Fields, Result, put_bytes, put_number};
use super::write::frame;

static LEAD: LazyLock<Lead> = LazyLock::new(|| Lead::new("v1", "Status"));

/// Writes a body that contains this Status.
pub fn status_body(status: &Status) -> Bytes {
    LEAD.around(&message(status)).into()
}

/// Writes the ERROR frame of a watch. No frame may follow it.
pub fn error_frame(status: &Status) -> Bytes {
    frame("ERROR", &LEAD, &message(status))
}

/// Reads a Status in its envelope.
///
/// # Errors
/// When the bytes are another object or not an object.
pub fn read_status(bytes: &[u8]) -> Result<Status> {
    let envelope = Envelope::read(bytes)?;
    if envelope.kind != "Status" {
        return Err(CodecError::NotAStatus(envelope.kind.chars().take(64).collect()));
    }
    parse(envelope.message)
}

fn message(status: &Status) -> Vec<u8> {
    let mut metadata = Vec::new();
    put_bytes(&mut metadata, 1, b"");
    put_bytes(&mut metadata, 2, b"");
    put_bytes(&mut metadata, 3, status.metadata.continue_token.as_bytes());
    let mut out = Vec::with_capacity(128 + status.message.len());
    put_bytes(&mut out, 1, &metadata);
    put_bytes(&mut out, 2, status.status.as_bytes());
    put_bytes(&mut out, 3, status.message.as_bytes());
    put_bytes(&mut out, 4, status.reason.as_bytes());
    if let Some(details) = &status.details {
        put_bytes(&mut out, 5, &details_message(details));
    }
    put_number(&mut out, 6, status.code.into());
    out
}

fn details_message(details: &StatusDetails) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(&mut out, 1, details.name.as_bytes());
    put_bytes(&mut out, 2, details.group.as_bytes());
    put_bytes(&mut out, 3, details.kind.as_bytes());
    for cause in &details.causes {
        let mut message = Vec::new();
        put_bytes(&mut message, 1, cause.reason.as_bytes());
        put_bytes(&mut message, 2, cause.message.as_bytes());
        put_bytes(&mut message, 3, cause.field.as_bytes());
        put_bytes(&mut out, 4, &message);
    }
    put_number(&mut out, 5, details.retry_after_seconds.into());
    put_bytes(&mut out, 6, details.uid.as_bytes());
    out
}

fn parse(message: &[u8]) -> Result<Status> {
    let mut status = Status::failure(0, "", "");
    status.status.clear();
    let mut fields = Fields::new(message);
    while let Some(field) = fields.next()? {
        let text = || field.value.lossy("a Status").map(Cow::into_owned);
        match field.number {
            1 => {
                let mut metadata = Fields::new(field.value.bytes("metadata")?);
                while let Some(field) = metadata.next()? {
                    if field.number == 3 {
                        status.metadata.continue_token = field.value.text("metadata.continue")?.to_owned();
                    }
                }
            }
            2 => status.status = text()?,
            3 => status.message = text()?,
            4 => status.reason = text()?,
            5 => status.details = Some(parse_details(field.value.bytes("details")?)?),
            6 => status.code = u16::try_from(field.value.varint("code")?).unwrap_or(0),
            _ => {}
        }
    }
    Ok(status)
}

fn parse_details(message: &[u8]) -> Result<StatusDetails> {
    let mut details = StatusDetails::default();
    let mut fields = Fields::new(message);
    while let Some(field) = fields.next()? {
        let text = || field.value.lossy("details").map(Cow::into_owned);
        match field.number {
            1 => details.name = text()?,
            2 => details.group = text()?,
            3 => details.kind = text()?,
            4 => details.causes.push(parse_cause(field.value.bytes("a cause")?)?),
            5 => details.retry_after_seconds = u32::try_from(field.value.varint("retryAfterSeconds")?).unwrap_or(0),
            6 => details.uid = text()?,
            _ => {}
        }
    }
    Ok(details)
}

fn parse_cause(message: &[u8]) -> Result<StatusCause> {
    let mut cause = StatusCause::default();
    let mut fields = Fields::new(message);
    while let Some(field) = fields.next()? {
        let text = || field.value.lossy("a cause").map(Cow::into_owned);
        match field.number {
            1 => cause.reason = text()?,
            2 => cause.message = text()?,
            3 => cause.field = text()?,
            _ => {}
        }
    }
    Ok(cause)
}
