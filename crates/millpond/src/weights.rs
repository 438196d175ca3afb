//! The estimate a store starts from: how often each key is asked for, from a file of weights or a trace.
//!
//! Errors name lines, never keys.

use crate::config::{ConfigError, Distribution};
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Keys and their weights, which are positive and finite but need not add up to anything. Empty for a uniform guess.
pub type Weights = Vec<(Bytes, f64)>;

impl Distribution {
    /// Reads the weights.
    ///
    /// # Errors
    /// If the file can't be read, is malformed, names a key twice or holds more than `capacity` keys.
    pub fn weights(&self, capacity: u64) -> Result<Weights, ConfigError> {
        let (path, weights) = match self {
            Self::Uniform => return Ok(Weights::new()),
            Self::Weights(path) => (path, std::fs::read(path).map_err(Problem::from).and_then(|file| parse_csv(&file))),
            Self::Trace(path) => {
                (path, std::fs::File::open(path).map_err(Problem::from).and_then(|file| count(BufReader::new(file))))
            }
        };
        let weights = weights.map_err(|problem| problem.at(path))?;
        if weights.is_empty() {
            return Err(Problem::File("holds no keys; leave distribution at uniform".to_owned()).at(path));
        }
        if weights.len() as u64 > capacity {
            let what = format!("holds {} keys, more than the store's capacity {capacity}; raise it", weights.len());
            return Err(Problem::File(what).at(path));
        }
        Ok(weights)
    }
}

/// What is wrong with a file, and where.
enum Problem {
    File(String),
    Line(usize, &'static str),
}

impl From<std::io::Error> for Problem {
    fn from(error: std::io::Error) -> Self {
        Self::File(format!("can't be read: {error}"))
    }
}

impl Problem {
    fn at(self, path: &Path) -> ConfigError {
        ConfigError(match self {
            Self::File(what) => format!("distribution file {}: {what}", path.display()),
            Self::Line(line, what) => format!("distribution file {} line {line}: {what}", path.display()),
        })
    }
}

/// Reads `key,weight` lines as RFC 4180 has them: a key in double quotes may hold commas, line ends and, doubled, quotes.
/// A first line `key,weight` is a heading.
fn parse_csv(mut rest: &[u8]) -> Result<Weights, Problem> {
    let mut weights = Weights::new();
    let mut seen = HashSet::new();
    let mut line = 1;
    while !rest.is_empty() {
        let at = line;
        let fail = |what| Problem::Line(at, what);
        if let Some(blank) = rest.strip_prefix(b"\n").or_else(|| rest.strip_prefix(b"\r\n")) {
            (rest, line) = (blank, line + 1);
            continue;
        }
        let (key, after_key) = csv_key(rest).map_err(fail)?;
        line += rest.iter().take(rest.len() - after_key.len()).filter(|byte| **byte == b'\n').count() + 1;
        let end = after_key.iter().position(|byte| *byte == b'\n').unwrap_or(after_key.len());
        let (weight, after) = after_key.split_at(end);
        rest = after.strip_prefix(b"\n").unwrap_or(after);
        let weight = weight.trim_ascii();
        if at == 1 && key == b"key" && weight == b"weight" {
            continue;
        }
        let weight: f64 = std::str::from_utf8(weight).ok().and_then(|text| text.trim_matches('"').parse().ok()).ok_or(
            fail("expected key,weight with a number for the weight; put keys that hold a comma in double quotes"),
        )?;
        if !(weight.is_finite() && weight > 0.0) {
            return Err(fail("the weight must be above 0; leave out keys that are never asked for"));
        }
        let key = Bytes::from(key);
        if !seen.insert(key.clone()) {
            return Err(fail("this key stands in the file twice; add its weights up"));
        }
        weights.push((key, weight));
    }
    Ok(weights)
}

/// A line's first field, and what follows the comma behind it.
fn csv_key(line: &[u8]) -> Result<(Vec<u8>, &[u8]), &'static str> {
    const NO_COMMA: &str = "expected key,weight, with a comma between";
    let Some(mut quoted) = line.strip_prefix(b"\"") else {
        let comma = line.iter().position(|byte| matches!(byte, b',' | b'\n')).ok_or(NO_COMMA)?;
        let (key, rest) = line.split_at(comma);
        return Ok((key.to_vec(), rest.strip_prefix(b",").ok_or(NO_COMMA)?));
    };
    let mut key = Vec::new();
    loop {
        let quote = quoted.iter().position(|byte| *byte == b'"').ok_or("a double quote is never closed")?;
        let (part, rest) = quoted.split_at(quote);
        key.extend_from_slice(part);
        match rest.strip_prefix(b"\"\"") {
            Some(more) => {
                key.push(b'"');
                quoted = more;
            }
            None => return Ok((key, rest.strip_prefix(b"\",").ok_or(NO_COMMA)?)),
        }
    }
}

/// Counts a trace, one key a line, in the order of first appearance. Empty lines don't count.
fn count(mut trace: impl BufRead) -> Result<Weights, Problem> {
    let mut weights = Weights::new();
    let mut index: HashMap<Bytes, usize> = HashMap::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        if trace.read_until(b'\n', &mut line)? == 0 {
            return Ok(weights);
        }
        let key = line.strip_suffix(b"\n").unwrap_or(&line);
        let key = key.strip_suffix(b"\r").unwrap_or(key);
        if key.is_empty() {
            continue;
        }
        if let Some((_, weight)) = index.get(key).and_then(|i| weights.get_mut(*i)) {
            *weight += 1.0;
        } else {
            let key = Bytes::copy_from_slice(key);
            index.insert(key.clone(), weights.len());
            weights.push((key, 1.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csv(text: &[u8]) -> Result<Vec<(Vec<u8>, f64)>, String> {
        let weights = parse_csv(text).map_err(|problem| problem.at(Path::new("w")).0)?;
        Ok(weights.into_iter().map(|(key, weight)| (key.to_vec(), weight)).collect())
    }

    #[test]
    fn csv_takes_quotes_headings_blank_lines_and_any_bytes() {
        let text = b"key,weight\r\na,1\r\n\n\"b,\"\"\nc\" ,2\n";
        assert!(csv(text).unwrap_err().contains("line 4: expected key,weight"));
        let text = b"key,weight\r\na,1\r\n\n\"b,\"\"\nc\", 2.5e-3\n\xff\x00,3\n\"\",4";
        let expected: Vec<(&[u8], f64)> = vec![(b"a", 1.0), (b"b,\"\nc", 2.5e-3), (b"\xff\x00", 3.0), (b"", 4.0)];
        let expected: Vec<_> = expected.into_iter().map(|(key, weight)| (key.to_vec(), weight)).collect();
        assert_eq!(csv(text).unwrap(), expected);
    }

    #[test]
    fn csv_errors_name_the_line_and_no_key() {
        for (text, says) in [
            ("a,1\nhush\n", "line 2: expected key,weight"),
            ("a,1\nhush", "line 2: expected key,weight"),
            ("a,1\nhush,x\n", "line 2: expected key,weight with a number"),
            ("a,1\n\"q\nq\",1\nhush,0\n", "line 4: the weight must be above 0"),
            ("hush,-1", "line 1: the weight must"),
            ("hush,NaN", "line 1: the weight must"),
            ("hush,inf", "line 1: the weight must"),
            ("hush,1\na,1\nhush,2", "line 3: this key stands in the file twice"),
            ("\"hush,1", "line 1: a double quote is never closed"),
            ("\"hush\"x,1", "line 1: expected key,weight"),
        ] {
            let said = csv(text.as_bytes()).unwrap_err();
            assert!(said.contains(says) && !said.contains("hush"), "{text:?}: {said}");
        }
    }

    #[test]
    fn a_trace_is_counted() {
        let weights = count(&b"b\na\r\nb\n\nb"[..]).ok().unwrap();
        assert_eq!(weights, vec![(Bytes::from("b"), 3.0), (Bytes::from("a"), 1.0)]);
    }

    #[test]
    fn files_that_do_not_fit_are_refused() {
        let path = std::env::temp_dir().join(format!("millpond-weights-{}", std::process::id()));
        std::fs::write(&path, "a,1\nb,1\nc,1\n").unwrap();
        let weights = Distribution::Weights(path.clone());
        assert_eq!(weights.weights(3).unwrap().len(), 3);
        assert!(weights.weights(2).unwrap_err().0.contains("more than the store's capacity 2"));
        std::fs::write(&path, "\n").unwrap();
        assert!(Distribution::Trace(path.clone()).weights(2).unwrap_err().0.contains("holds no keys"));
        std::fs::remove_file(&path).unwrap();
        assert!(weights.weights(2).unwrap_err().0.contains("can't be read"));
        assert!(Distribution::Uniform.weights(2).unwrap().is_empty());
    }
}
