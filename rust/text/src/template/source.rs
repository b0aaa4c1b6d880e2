//! What is done to a template's source before it is compiled: the differences
//! between jinja2's and minijinja's syntax, and what is refused because
//! minijinja would lose output without an error.

use super::percent;
use crate::abi::{failure, Failure};

/// One `{% ... %}` tag: byte ranges in the source.
struct Tag<'a> {
    name: &'a str,
    name_at: usize,
    body: &'a str,
    end: usize,
}

fn line_of(source: &str, at: usize) -> usize {
    source[..at].matches('\n').count() + 1
}

/// The end of the tag that starts before `from`, strings skipped: the index
/// just behind `close`.
fn find_close(source: &str, from: usize, close: &str) -> Option<usize> {
    let bytes = source.as_bytes();
    let mut at = from;
    let mut quote = None;
    while at < bytes.len() {
        match (quote, bytes[at]) {
            (Some(_), b'\\') => at += 1,
            (Some(q), c) if c == q => quote = None,
            (Some(_), _) => {}
            (None, b'\'' | b'"') => quote = Some(bytes[at]),
            (None, _) if bytes[at..].starts_with(close.as_bytes()) => {
                return Some(at + close.len())
            }
            _ => {}
        }
        at += 1;
    }
    None
}

fn parse_tag(source: &str, open: usize) -> Option<Tag<'_>> {
    let end = find_close(source, open + 2, "%}")?;
    let inner = &source[open + 2..end - 2];
    let skipped = inner.len() - inner.trim_start_matches(['-', '+']).trim_start().len();
    let rest = &inner[skipped..];
    let length = rest
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(rest.len());
    Some(Tag {
        name: &rest[..length],
        name_at: open + 2 + skipped,
        body: rest[length..].trim_end_matches(['-', '+']).trim(),
        end,
    })
}

/// `{% set x %}...{% endset %}` captures output; `{% set x = 1 %}` does not.
fn set_is_block(body: &str) -> bool {
    let mut quote = None;
    for c in body.chars() {
        match quote {
            Some(q) if c == q => quote = None,
            Some(_) => {}
            None if c == '\'' || c == '"' => quote = Some(c),
            None if c == '=' => return false,
            None => {}
        }
    }
    true
}

/// Blocks that minijinja leaves open when break or continue jumps out.
fn check_jump(source: &str, tag: &Tag, open: &[&str]) -> Result<(), Failure> {
    for block in open.iter().rev() {
        match *block {
            "for" => return Ok(()),
            "if" => {}
            other => {
                return failure(format!(
                    "line {}: '{{% {} %}}' inside '{{% {other} %}}' is not supported",
                    line_of(source, tag.name_at),
                    tag.name
                ))
            }
        }
    }
    Ok(()) // outside a loop: the compiler's own error is clear
}

/// jinja2 reads \r\n and \r as \n. `{% generation %}` (transformers' mark for
/// training) scopes like `{% with %}`. jinja2 keeps the newline after
/// `{% raw %}` that minijinja's trim_blocks removes.
pub fn prepare(original: &str) -> Result<String, Failure> {
    let source = original.replace("\r\n", "\n").replace('\r', "\n");
    let source = source.as_str();
    let mut out = String::with_capacity(source.len() + 16);
    let mut open: Vec<&str> = Vec::new();
    let mut at = 0;
    while let Some(found) = source[at..].find('{') {
        let start = at + found;
        out.push_str(&source[at..start]);
        let rest = &source[start..];
        let end = if rest.starts_with("{#") {
            rest.find("#}").map(|i| start + i + 2)
        } else if rest.starts_with("{{") {
            find_close(source, start + 2, "}}")
        } else if rest.starts_with("{%") {
            match parse_tag(source, start) {
                None => None,
                Some(tag) if tag.name == "raw" => {
                    let body = &source[tag.end..];
                    let close = end_of_raw(body);
                    let head = &source[start..tag.end - 2];
                    out.push_str(head);
                    if !head.ends_with(['-', '+']) {
                        out.push('+');
                    }
                    out.push_str("%}");
                    out.push_str(&body[..close]);
                    at = tag.end + close;
                    continue;
                }
                Some(tag) => {
                    let replaced = follow_block(source, &tag, &mut open)?;
                    out.push_str(&source[start..tag.name_at]);
                    out.push_str(replaced);
                    let code = &source[tag.name_at + tag.name.len()..tag.end - 2];
                    out.push_str(&percent::rewrite(code));
                    out.push_str("%}");
                    at = tag.end;
                    continue;
                }
            }
        } else {
            Some(start + 1)
        };
        let end = end.unwrap_or(source.len()); // unclosed: the compiler says so
        if rest.starts_with("{{") {
            out.push_str(&percent::rewrite(&source[start..end]));
        } else {
            out.push_str(&source[start..end]);
        }
        at = end;
    }
    out.push_str(&source[at..]);
    Ok(out)
}

/// Where the `{% endraw %}` tag starts in `body`.
fn end_of_raw(body: &str) -> usize {
    let mut from = 0;
    while let Some(found) = body[from..].find("{%") {
        let start = from + found;
        if parse_tag(body, start).is_some_and(|tag| tag.name == "endraw") {
            return start;
        }
        from = start + 2;
    }
    body.len()
}

fn follow_block<'a>(
    source: &str,
    tag: &Tag<'a>,
    open: &mut Vec<&'a str>,
) -> Result<&'a str, Failure> {
    match tag.name {
        "for" | "if" | "with" | "filter" | "macro" | "call" | "block" | "autoescape" => {
            open.push(tag.name)
        }
        "generation" => {
            open.push(tag.name);
            return Ok("with");
        }
        "endgeneration" => {
            open.pop();
            return Ok("endwith");
        }
        "set" if set_is_block(tag.body) => open.push(tag.name),
        "break" | "continue" => check_jump(source, tag, open)?,
        name if name.starts_with("end") => {
            open.pop();
        }
        _ => {}
    }
    Ok(tag.name)
}

#[cfg(test)]
mod tests {
    use super::prepare;

    fn prepared(source: &str) -> String {
        prepare(source).map_err(|f| f.message).unwrap()
    }

    #[test]
    fn generation_becomes_with_outside_strings_and_raw() {
        assert_eq!(
            prepared("{%- generation -%}{{ '{% generation %}' }}{% endgeneration %}"),
            "{%- with -%}{{ '{% generation %}' }}{% endwith %}"
        );
        assert_eq!(
            prepared("{% raw %}{% generation %}{% endraw %}"),
            "{% raw +%}{% generation %}{% endraw %}"
        );
        assert_eq!(prepared("{# {% generation %} #}"), "{# {% generation %} #}");
    }

    #[test]
    fn jumps_out_of_captures_are_refused() {
        let error = prepare("\n{% for x in y %}{% set z %}{% break %}{% endset %}{% endfor %}");
        assert_eq!(
            error.err().unwrap().message,
            "line 2: '{% break %}' inside '{% set %}' is not supported"
        );
        prepared("{% for x in y %}{% set z = 1 %}{% if z %}{% break %}{% endif %}{% endfor %}");
        prepared("{% set z %}{% for x in y %}{% continue %}{% endfor %}{% endset %}");
    }

    #[test]
    fn line_ends_are_normalised() {
        assert_eq!(prepared("a\r\nb\rc"), "a\nb\nc");
    }
}
