//! Python's methods of str, list and dict that minijinja-contrib lacks or
//! that it takes without their keyword arguments.

use super::filters::{check_width, invalid};
use minijinja::value::{from_args, Kwargs, Tuple, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

pub enum Side {
    Left,
    Right,
    Both,
}

/// Pads to `width` characters; str.center puts the odd one as Python does.
pub fn pad(text: &str, width: usize, fill: char, side: Side) -> Result<Value, Error> {
    let length = text.chars().count();
    let missing = check_width(width)?.saturating_sub(length);
    let left = match side {
        Side::Left => missing,
        Side::Right => 0,
        Side::Both => missing / 2 + (missing & width & 1),
    };
    let fill_with = |n: usize| fill.to_string().repeat(n);
    Ok(Value::from(
        fill_with(left) + text + &fill_with(missing - left),
    ))
}

fn padding(args: &[Value]) -> Result<(usize, char), Error> {
    let (width, fill): (i64, Option<&str>) = from_args(args)?;
    let mut characters = fill.unwrap_or(" ").chars();
    match (characters.next(), characters.next()) {
        (Some(c), None) => Ok((width.max(0) as usize, c)),
        _ => invalid("The fill character must be exactly one character long"),
    }
}

fn splits(args: &[Value]) -> Result<(Option<String>, Option<usize>), Error> {
    let (separator, limit, kwargs): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
    let separator = match separator {
        Some(value) => Some(value),
        None => kwargs.get::<Option<Value>>("sep")?,
    };
    let limit = match limit {
        Some(limit) => Some(limit),
        None => kwargs.get::<Option<i64>>("maxsplit")?,
    };
    kwargs.assert_all_used()?;
    let separator = match separator {
        Some(value) if !value.is_none() => match value.as_str() {
            Some("") => return invalid("empty separator"),
            Some(text) => Some(text.to_string()),
            None => return invalid("split: the separator must be a string"),
        },
        _ => None,
    };
    let limit = limit.and_then(|n| usize::try_from(n).ok());
    Ok((separator, limit))
}

/// str.split(None, n): runs of white space, none at the ends.
fn split_white(text: &str, limit: Option<usize>) -> Vec<String> {
    let Some(limit) = limit else {
        return text.split_whitespace().map(str::to_string).collect();
    };
    let mut parts = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if parts.len() == limit {
            parts.push(rest.to_string());
            break;
        }
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        parts.push(rest[..end].to_string());
        rest = rest[end..].trim_start();
    }
    parts
}

fn rsplit_white(text: &str, limit: Option<usize>) -> Vec<String> {
    let Some(limit) = limit else {
        return split_white(text, None);
    };
    let mut parts = Vec::new();
    let mut rest = text.trim_end();
    while !rest.is_empty() {
        if parts.len() == limit {
            parts.push(rest.to_string());
            break;
        }
        let start = rest
            .char_indices()
            .rev()
            .find(|(_, c)| c.is_whitespace())
            .map_or(0, |(i, c)| i + c.len_utf8());
        parts.push(rest[start..].to_string());
        rest = rest[..start].trim_end();
    }
    parts.reverse();
    parts
}

fn rsplit(text: &str, separator: Option<String>, limit: Option<usize>) -> Vec<String> {
    match separator {
        None => rsplit_white(text, limit),
        Some(separator) => {
            let mut parts: Vec<String> = match limit {
                Some(n) => text
                    .rsplitn(n.saturating_add(1), &separator)
                    .map(str::to_string)
                    .collect(),
                None => text.rsplit(&separator).map(str::to_string).collect(),
            };
            parts.reverse();
            parts
        }
    }
}

fn split(text: &str, separator: Option<String>, limit: Option<usize>) -> Vec<String> {
    match (separator, limit) {
        (None, limit) => split_white(text, limit),
        (Some(s), Some(n)) => text
            .splitn(n.saturating_add(1), &s)
            .map(str::to_string)
            .collect(),
        (Some(s), None) => text.split(&s).map(str::to_string).collect(),
    }
}

/// str.splitlines: \n, \r\n, \r and Unicode's other line ends.
pub fn split_lines(text: &str, keep: bool) -> Vec<String> {
    const ENDS: [char; 10] = [
        '\n', '\r', '\u{b}', '\u{c}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{85}', '\u{2028}',
        '\u{2029}',
    ];
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(ENDS).unwrap_or(rest.len());
        let after = &rest[end..];
        let length = if after.starts_with("\r\n") {
            2
        } else {
            after.chars().next().map_or(0, char::len_utf8)
        };
        lines.push(rest[..if keep { end + length } else { end }].to_string());
        rest = &rest[end + length..];
    }
    lines
}

fn partition(text: &str, args: &[Value], from_right: bool) -> Result<Value, Error> {
    let (separator,): (&str,) = from_args(args)?;
    if separator.is_empty() {
        return invalid("empty separator");
    }
    let found = if from_right {
        text.rfind(separator)
    } else {
        text.find(separator)
    };
    let parts = match found {
        Some(at) => [&text[..at], separator, &text[at + separator.len()..]],
        None if from_right => ["", "", text],
        None => [text, "", ""],
    };
    Ok(Value::from(Tuple::from(parts.map(Value::from))))
}

fn zfill(text: &str, width: usize) -> Result<Value, Error> {
    let (sign, digits) = match text.strip_prefix(['+', '-']) {
        Some(digits) => (&text[..1], digits),
        None => ("", text),
    };
    let padded = pad(
        digits,
        check_width(width)?.saturating_sub(sign.len()),
        '0',
        Side::Left,
    )?;
    Ok(Value::from(format!("{sign}{padded}")))
}

fn is_title(text: &str) -> bool {
    let mut cased = false;
    let mut inside = false;
    for c in text.chars() {
        if c.is_uppercase() {
            if inside {
                return false;
            }
            inside = true;
            cased = true;
        } else if c.is_lowercase() {
            if !inside {
                return false;
            }
            cased = true;
        } else {
            inside = false;
        }
    }
    cased
}

fn swap_case(text: &str) -> String {
    text.chars()
        .flat_map(|c| -> Vec<char> {
            if c.is_uppercase() {
                c.to_lowercase().collect()
            } else {
                c.to_uppercase().collect()
            }
        })
        .collect()
}

fn str_method(text: &str, method: &str, args: &[Value]) -> Option<Result<Value, Error>> {
    Some(match method {
        "removeprefix" => {
            from_args(args).map(|(p,): (&str,)| Value::from(text.strip_prefix(p).unwrap_or(text)))
        }
        "removesuffix" => {
            from_args(args).map(|(p,): (&str,)| Value::from(text.strip_suffix(p).unwrap_or(text)))
        }
        "partition" => partition(text, args, false),
        "rpartition" => partition(text, args, true),
        "split" => splits(args).map(|(s, n)| Value::from(split(text, s, n))),
        "rsplit" => splits(args).map(|(s, n)| Value::from(rsplit(text, s, n))),
        "splitlines" => from_args(args)
            .map(|(keep,): (Option<bool>,)| Value::from(split_lines(text, keep == Some(true)))),
        "index" | "rindex" => from_args(args).and_then(|(p,): (&str,)| {
            let found = if method == "index" {
                text.find(p)
            } else {
                text.rfind(p)
            };
            match found {
                Some(at) => Ok(Value::from(text[..at].chars().count())),
                None => invalid("substring not found"),
            }
        }),
        "zfill" => from_args(args).and_then(|(width,): (i64,)| zfill(text, width.max(0) as usize)),
        "ljust" => padding(args).and_then(|(w, c)| pad(text, w, c, Side::Right)),
        "rjust" => padding(args).and_then(|(w, c)| pad(text, w, c, Side::Left)),
        "center" => padding(args).and_then(|(w, c)| pad(text, w, c, Side::Both)),
        "casefold" => from_args(args).map(|()| Value::from(text.to_lowercase().replace('ß', "ss"))),
        "swapcase" => from_args(args).map(|()| Value::from(swap_case(text))),
        "istitle" => from_args(args).map(|()| Value::from(is_title(text))),
        "isdecimal" => from_args(args)
            .map(|()| Value::from(!text.is_empty() && text.chars().all(|c| c.is_ascii_digit()))),
        _ => return None,
    })
}

fn list_index(list: &Value, args: &[Value]) -> Result<Value, Error> {
    let (wanted,): (&Value,) = from_args(args)?;
    match list.try_iter()?.position(|item| item == *wanted) {
        Some(at) => Ok(Value::from(at)),
        None => invalid(format!("{wanted} is not in list")),
    }
}

pub fn call(
    state: &mut State,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    match (value.kind(), method) {
        (ValueKind::String, _) => {
            if let Some(result) = str_method(value.as_str().unwrap_or_default(), method, args) {
                return result;
            }
        }
        (ValueKind::Seq, "index") => return list_index(value, args),
        (ValueKind::Seq | ValueKind::Map, "copy") => {
            let () = from_args(args)?;
            return Ok(value.clone());
        }
        (ValueKind::Seq, "append" | "extend" | "insert" | "pop" | "remove" | "clear")
        | (ValueKind::Map, "update" | "setdefault" | "pop" | "clear" | "popitem") => {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("'{method}' would change a value, which templates may not"),
            ))
        }
        _ => {}
    }
    unknown_method_callback(state, value, method, args)
}
