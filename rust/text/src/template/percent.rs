//! Python's `"..." % operand`, which minijinja has no operator for, written as
//! `"..."|format(operand)`. Only string literals on the left are known here; a
//! variable there fails when rendered, with minijinja's message.

const DEEPEST: usize = 16;

/// The end of the string literal that starts at `from`.
fn end_of_string(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            c if c == bytes[from] => return Some(at + 1),
            _ => {}
        }
        at += 1;
    }
    None
}

/// The end of the bracket that opens at `from`, and whether it has a comma of
/// its own.
fn end_of_bracket(bytes: &[u8], from: usize) -> Option<(usize, bool)> {
    let mut depth = 0;
    let mut comma = false;
    let mut at = from;
    while at < bytes.len() {
        match bytes[at] {
            b'\'' | b'"' => {
                at = end_of_string(bytes, at)?;
                continue;
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth -= 1;
                if depth == 0 {
                    return Some((at + 1, comma));
                }
            }
            b',' if depth == 1 => comma = true,
            _ => {}
        }
        at += 1;
    }
    None
}

fn skip(bytes: &[u8], mut at: usize, part: impl Fn(u8) -> bool) -> usize {
    while at < bytes.len() && part(bytes[at]) {
        at += 1;
    }
    at
}

fn is_white(byte: u8) -> bool {
    byte.is_ascii_whitespace()
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// The end of `.name`, `[...]`, `(...)` and `| filter` behind an operand.
fn end_of_postfix(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match bytes.get(at) {
            Some(b'.') => at = skip(bytes, at + 1, is_name),
            Some(b'(' | b'[') => at = end_of_bracket(bytes, at)?.0,
            _ => {
                let bar = skip(bytes, at, is_white);
                if bytes.get(bar) != Some(&b'|') {
                    return Some(at);
                }
                let name = skip(bytes, bar + 1, is_white);
                at = skip(bytes, name, is_name);
            }
        }
    }
}

/// The operand at `from`: its end and its text as arguments of a call.
fn operand(source: &str, from: usize) -> Option<(usize, &str)> {
    let bytes = source.as_bytes();
    let start = skip(bytes, from, is_white);
    let first = skip(bytes, start, |b| b == b'-');
    let (end, tuple) = match *bytes.get(first)? {
        b'\'' | b'"' => (end_of_string(bytes, first)?, false),
        b'(' => end_of_bracket(bytes, first)?,
        b'[' | b'{' => (end_of_bracket(bytes, first)?.0, false),
        b if is_name(b) => (skip(bytes, first, is_name), false),
        _ => return None,
    };
    let whole = end_of_postfix(bytes, end)?;
    if tuple && whole == end && first == start {
        return Some((end, &source[first + 1..end - 1]));
    }
    Some((whole, &source[start..whole]))
}

/// `code` is what stands between the braces of a tag.
pub fn rewrite(code: &str) -> String {
    rewrite_within(code, 0)
}

fn rewrite_within(code: &str, depth: usize) -> String {
    let bytes = code.as_bytes();
    let mut out = String::with_capacity(code.len());
    let mut copied = 0;
    let mut at = 0;
    while at < bytes.len() {
        if !matches!(bytes[at], b'\'' | b'"') {
            at += 1;
            continue;
        }
        let Some(end) = end_of_string(bytes, at) else {
            break;
        };
        at = end;
        let percent = skip(bytes, end, is_white);
        if bytes.get(percent) != Some(&b'%') || depth == DEEPEST {
            continue;
        }
        if let Some((after, arguments)) = operand(code, percent + 1) {
            out.push_str(&code[copied..end]);
            out.push_str("|format(");
            out.push_str(&rewrite_within(arguments, depth + 1));
            out.push(')');
            copied = after;
            at = after;
        }
    }
    out.push_str(&code[copied..]);
    out
}

#[cfg(test)]
mod tests {
    use super::rewrite;

    #[test]
    fn literals_with_an_operand_become_calls() {
        for (code, expected) in [
            ("'%s' % x", "'%s'|format(x)"),
            ("'%s-%d' % (a, 3)", "'%s-%d'|format(a, 3)"),
            ("'%s' % x.y[0].z() ~ 'a'", "'%s'|format(x.y[0].z()) ~ 'a'"),
            ("'%s' % (a or b) | upper", "'%s'|format((a or b) | upper)"),
            ("'%s' % -1", "'%s'|format(-1)"),
            ("'%s' % ('%d' % 1)", "'%s'|format(('%d'|format(1)))"),
            ("5 % 3 ~ 'a' ", "5 % 3 ~ 'a' "),
            ("'it\\'s' %", "'it\\'s' %"),
            ("'% x' ~ \"'\" % é", "'% x' ~ \"'\"|format(é)"),
        ] {
            assert_eq!(rewrite(code), expected);
        }
    }
}
