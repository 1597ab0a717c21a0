//! Field blocks of HTTP/2 (RFC 7541): written without any compression, and read as libraries write them.

use std::collections::VecDeque;
use std::sync::LazyLock;

/// A name and a value.
pub type Field = (String, String);

/// Appendix A: name and value, one entry a line.
const STATIC_TABLE: &str = ":authority
:method GET
:method POST
:path /
:path /index.html
:scheme http
:scheme https
:status 200
:status 204
:status 206
:status 304
:status 400
:status 404
:status 500
accept-charset
accept-encoding gzip, deflate
accept-language
accept-ranges
accept
access-control-allow-origin
age
allow
authorization
cache-control
content-disposition
content-encoding
content-language
content-length
content-location
content-range
content-type
cookie
date
etag
expect
expires
from
host
if-match
if-modified-since
if-none-match
if-range
if-unmodified-since
last-modified
link
location
max-forwards
proxy-authenticate
proxy-authorization
range
referer
refresh
retry-after
server
set-cookie
strict-transport-security
transfer-encoding
user-agent
vary
via
www-authenticate";
const STATIC_ENTRIES: usize = 61;

/// Appendix B: the code's length of each byte. The codes follow from their lengths.
const CODE_LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

/// The size of the table until a setting changes it.
const TABLE_BYTES: usize = 4096;

/// Appends a field as a literal that no table keeps.
pub fn put_field(block: &mut Vec<u8>, name: &str, value: &str) {
    block.push(0);
    for text in [name, value] {
        put_length(block, text.len());
        block.extend_from_slice(text.as_bytes());
    }
}

/// Appends a length of seven bits and more (section 5.1).
fn put_length(block: &mut Vec<u8>, length: usize) {
    let Some(mut rest) = length.checked_sub(127) else {
        return block.push(length as u8);
    };
    block.push(127);
    while rest >= 128 {
        block.push(128 | rest as u8);
        rest /= 128;
    }
    block.push(rest as u8);
}

/// The reader of the blocks of one connection.
#[derive(Debug)]
pub struct Decoder {
    entries: VecDeque<Field>,
    max_bytes: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            max_bytes: TABLE_BYTES,
        }
    }
}

impl Decoder {
    /// Reads a whole block; `None` if it is malformed.
    pub fn read(&mut self, mut block: &[u8]) -> Option<Vec<Field>> {
        let mut fields = Vec::new();
        while let Some(&first) = block.first() {
            match first {
                128.. => fields.push(self.entry(take_number(&mut block, 7)?)?),
                64.. => {
                    let field = self.literal(&mut block, 6)?;
                    self.entries.push_front(field.clone());
                    self.evict();
                    fields.push(field);
                }
                32.. => {
                    self.max_bytes = take_number(&mut block, 5)?;
                    self.evict();
                }
                _ => fields.push(self.literal(&mut block, 4)?),
            }
        }
        Some(fields)
    }

    /// Returns the names that later blocks may refer to.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|(name, _)| &**name)
    }

    fn literal(&self, block: &mut &[u8], bits: u32) -> Option<Field> {
        let name = match take_number(block, bits)? {
            0 => take_text(block)?,
            index => self.entry(index)?.0,
        };
        Some((name, take_text(block)?))
    }

    fn entry(&self, index: usize) -> Option<Field> {
        if index > STATIC_ENTRIES {
            return self.entries.get(index - STATIC_ENTRIES - 1).cloned();
        }
        let line = STATIC_TABLE.lines().nth(index.checked_sub(1)?)?;
        let (name, value) = line.split_once(' ').unwrap_or((line, ""));
        Some((name.to_owned(), value.to_owned()))
    }

    fn evict(&mut self) {
        let size = |(name, value): &Field| name.len() + value.len() + 32;
        while self.entries.iter().map(size).sum::<usize>() > self.max_bytes {
            self.entries.pop_back();
        }
    }
}

fn take_number(block: &mut &[u8], bits: u32) -> Option<usize> {
    let (&first, mut rest) = block.split_first()?;
    let most = (1 << bits) - 1;
    let mut number = usize::from(first) & most;
    if number == most {
        for shift in (0..28).step_by(7) {
            let (&byte, after) = rest.split_first()?;
            rest = after;
            number += usize::from(byte & 127) << shift;
            if byte < 128 {
                break;
            }
        }
    }
    *block = rest;
    Some(number)
}

fn take_text(block: &mut &[u8]) -> Option<String> {
    let is_coded = *block.first()? >= 128;
    let length = take_number(block, 7)?;
    let (bytes, rest) = block.split_at_checked(length)?;
    *block = rest;
    let bytes = if is_coded {
        decoded(bytes)
    } else {
        bytes.to_vec()
    };
    String::from_utf8(bytes).ok()
}

/// Bytes by the length of their code. In a canonical code those of one length follow each other, behind
/// the shorter ones.
static BY_LENGTH: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let of_length = |length: u8| {
        let bytes = 0..=u8::MAX;
        bytes
            .filter(|byte| CODE_LENGTHS[usize::from(*byte)] == length)
            .collect()
    };
    (0..=30).map(of_length).collect()
});

/// Decodes Huffman's code.
fn decoded(bytes: &[u8]) -> Vec<u8> {
    let (mut text, mut code, mut length, mut first) = (Vec::new(), 0, 0, 0);
    let bits = bytes
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1));
    for bit in bits {
        code = code * 2 + usize::from(bit);
        first *= 2;
        length += 1;
        // Longer than any code: not a text.
        let Some(of_length) = BY_LENGTH.get(length) else {
            return text;
        };
        if let Some(byte) = of_length.get(code - first) {
            text.push(*byte);
            (code, length, first) = (0, 0, 0);
        } else {
            first += of_length.len();
        }
    }
    text
}
