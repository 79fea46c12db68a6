//! Gzip of any number of members, that says so where something else follows them.

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;

/// The first byte of a member.
const MAGIC: u8 = 0x1f;

/// The unpacked content of gzip data. Several members one after the other are one content, as
/// `cat a.gz b.gz` makes it.
#[derive(Debug)]
pub(super) struct Gunzip<R: BufRead> {
    /// `None` once all was read, or reading failed.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Gunzip<R> {
    /// Of data that begins with a member.
    pub(super) fn new(packed: R) -> Self {
        Self { member: Some(GzDecoder::new(packed)) }
    }
}

impl<R: BufRead> Read for Gunzip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let count = member.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            let Some(mut packed) = self.member.take().map(GzDecoder::into_inner) else { break };
            match packed.fill_buf()?.first() {
                None => {}
                Some(&MAGIC) => self.member = Some(GzDecoder::new(packed)),
                Some(_) => {
                    let text = "bytes that are no gzip follow the compressed content: something \
                                was appended to the file";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, text));
                }
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn packed(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    fn unpacked(bytes: &[u8]) -> io::Result<String> {
        let mut text = String::new();
        Gunzip::new(bytes).read_to_string(&mut text)?;
        Ok(text)
    }

    #[test]
    fn members_are_one_content() {
        let both = [packed("one,"), packed(""), packed("two")].concat();
        assert_eq!(unpacked(&both).unwrap(), "one,two");
    }

    #[test]
    fn what_follows_is_named_and_what_is_missing_is_an_early_end() {
        for rest in [&b"\0"[..], b"\0\0\0\0\0\0\0\0\0\0\0\0", b"one,two\n"] {
            let error = unpacked(&[&packed("one")[..], rest].concat()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            assert!(error.to_string().contains("no gzip follow"), "{error}");
        }
        let whole = packed("a text of some length");
        for length in 1..whole.len() {
            let error = unpacked(&whole[..length]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{length}");
        }
    }
}
