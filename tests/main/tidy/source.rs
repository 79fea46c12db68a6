//! A Rust file as the rules see it: words and signs, without comments and strings.

use std::ops::Range;

/// A word, a number or a single sign of the code.
#[derive(Debug, PartialEq, Eq)]
pub struct Token {
    pub text: String,
    /// From 1.
    pub line: usize,
    /// Inside `#[cfg(test)]` or `#[test]`, or in a file that is test code as a whole.
    pub test: bool,
}

/// One Rust file.
pub struct Source {
    /// Relative to the root of the repository.
    pub path: String,
    pub raw: String,
    pub tokens: Vec<Token>,
}

/// A function: where its words stand among the tokens, and which lines it takes.
pub struct Function {
    pub name: String,
    pub lines: Range<usize>,
}

impl Source {
    pub fn new(path: &str, raw: &str) -> Self {
        let mut tokens = tokens(&without_comments_and_strings(raw));
        mark_tests(&mut tokens);
        let all_test = !path.starts_with("src/") || path.ends_with("/tests.rs");
        tokens.iter_mut().for_each(|token| token.test |= all_test);
        Self { path: path.to_owned(), raw: raw.to_owned(), tokens }
    }

    /// The text of a token, empty beyond the end.
    pub fn text(&self, index: usize) -> &str {
        self.tokens.get(index).map_or("", |token| &token.text)
    }

    /// Whether the tokens from `index` on read like this.
    pub fn reads(&self, index: usize, words: &[&str]) -> bool {
        words.iter().enumerate().all(|(offset, word)| self.text(index + offset) == *word)
    }

    /// Indices of the tokens that are no test code.
    pub fn indices(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.tokens.len()).filter(|&index| !self.tokens[index].test)
    }

    /// The sign that closes the bracket at `open`, or the end of the file.
    pub fn closing(&self, open: usize) -> usize {
        closing(&self.tokens, open)
    }

    /// All functions with a body, tests and nested ones included.
    pub fn functions(&self) -> Vec<Function> {
        let mut functions = Vec::new();
        for at in 0..self.tokens.len() {
            let name = self.text(at + 1);
            if self.text(at) != "fn" || !name.starts_with(is_word) {
                continue;
            }
            let Some(open) = body(&self.tokens, at) else { continue };
            let last = self.closing(open).min(self.tokens.len() - 1);
            let lines = self.tokens[at].line..self.tokens[last].line + 1;
            functions.push(Function { name: name.to_owned(), lines });
        }
        functions
    }
}

/// The brace that opens the body of the item at `from`; none if a semicolon ends it first.
fn body(tokens: &[Token], from: usize) -> Option<usize> {
    let mut at = from;
    while at < tokens.len() {
        match tokens[at].text.as_str() {
            "(" | "[" => at = closing(tokens, at),
            "{" => return Some(at),
            ";" => return None,
            _ => {}
        }
        at += 1;
    }
    None
}

fn closing(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0;
    for (index, token) in tokens.iter().enumerate().skip(open) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return index;
        }
    }
    tokens.len()
}

fn mark_tests(tokens: &mut [Token]) {
    let reads = |tokens: &[Token], at: usize, words: &[&str]| {
        words.iter().enumerate().all(|(i, w)| tokens.get(at + i).is_some_and(|t| t.text == *w))
    };
    for at in 0..tokens.len() {
        let is_test = reads(tokens, at, &["#", "[", "test", "]"])
            || reads(tokens, at, &["#", "[", "cfg", "(", "test", ")", "]"]);
        if !is_test {
            continue;
        }
        let end = match body(tokens, at) {
            Some(open) => closing(tokens, open),
            None => at + tokens[at..].iter().take_while(|token| token.text != ";").count(),
        };
        let end = end.min(tokens.len() - 1);
        tokens[at..=end].iter_mut().for_each(|token| token.test = true);
    }
}

pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn tokens(code: &str) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::new();
    for (index, text) in code.lines().enumerate() {
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            let length = match is_word(first) {
                true => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
                false => first.len_utf8(),
            };
            let (word, after) = rest.split_at(length);
            tokens.push(Token { text: word.to_owned(), line: index + 1, test: false });
            rest = after.trim_start();
        }
    }
    tokens
}

/// The same lines with every comment left out, and every string and character literal emptied.
fn without_comments_and_strings(raw: &str) -> String {
    let mut code = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(first) = rest.chars().next() {
        let after_word = code.ends_with(is_word);
        let (length, kept) = if rest.starts_with("//") {
            (rest.find('\n').unwrap_or(rest.len()), "")
        } else if rest.starts_with("/*") {
            (block_comment(rest), " ")
        } else if let Some(length) = (!after_word).then(|| raw_string(rest)).flatten() {
            (length, "\"\"")
        } else if first == '"' {
            (1 + quoted(&rest[1..], '"'), "\"\"")
        } else if let Some(length) = character(rest) {
            (length, "''")
        } else {
            (first.len_utf8(), &rest[..first.len_utf8()])
        };
        let (gone, after) = rest.split_at(length);
        code.push_str(kept);
        if kept != gone {
            code.extend(gone.chars().filter(|&c| c == '\n'));
        }
        rest = after;
    }
    code
}

fn block_comment(text: &str) -> usize {
    let (mut at, mut depth) = (0, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            (at, depth) = (at + 2, depth + 1);
        } else if rest.starts_with(b"*/") {
            (at, depth) = (at + 2, depth - 1);
        } else {
            at += 1;
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The length of a raw string, if the text begins with one.
fn raw_string(text: &str) -> Option<usize> {
    let prefix = ["br", "cr", "r"].into_iter().find(|prefix| text.starts_with(prefix))?;
    let marked = &text[prefix.len()..];
    let marks = marked.len() - marked.trim_start_matches('#').len();
    let inside = marked[marks..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(marks));
    let start = prefix.len() + marks + 1;
    Some(inside.find(&end).map_or(text.len(), |at| start + at + end.len()))
}

/// The length of what is inside quotes, the closing one included.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a character literal, if the text begins with one and not with a lifetime.
fn character(text: &str) -> Option<usize> {
    let inside = text.strip_prefix('\'')?;
    let first = inside.chars().next()?;
    if first == '\\' {
        return Some(1 + quoted(inside, '\''));
    }
    inside[first.len_utf8()..].starts_with('\'').then(|| 2 + first.len_utf8())
}

#[test]
fn comments_and_strings_are_no_code() {
    let raw = "a /* b /* c */ \n d */ e // f\n\"g \\\" \n h\" 'i' '\\'' &'j k r#\"l \" m\"# n";
    let source = Source::new("src/x.rs", raw);
    let words: Vec<(&str, usize)> = source
        .tokens
        .iter()
        .filter(|token| token.text.starts_with(is_word))
        .map(|token| (token.text.as_str(), token.line))
        .collect();
    assert_eq!(words, [("a", 1), ("e", 2), ("j", 4), ("k", 4), ("n", 4)]);
}

#[test]
fn test_code_is_told_from_the_rest() {
    let raw = "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() { c([1; 2]) }\n}\nfn d() {}\n\
               #[cfg(test)]\nmod e;\nfn f() {}";
    let source = Source::new("src/x.rs", raw);
    let words: String = source.indices().map(|index| source.text(index)).collect();
    assert_eq!(words, "fna(){}fnd(){}fnf(){}");
    assert_eq!(Source::new("tests/x.rs", raw).indices().count(), 0);
    assert_eq!(Source::new("src/x/tests.rs", raw).indices().count(), 0);
}

#[test]
fn functions_have_their_lines() {
    let raw = "trait A { fn a(&self) -> [u8; 2]; }\nfn b(\n c: fn(u8),\n) -> [u8; 2] {\n {}\n}\n";
    let functions = Source::new("src/x.rs", raw).functions();
    assert_eq!(functions.len(), 1);
    assert_eq!((functions[0].name.as_str(), functions[0].lines.clone()), ("b", 2..7));
}
