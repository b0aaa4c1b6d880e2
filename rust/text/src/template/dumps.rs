//! Python's json.dumps and float repr, which chat templates rely on to the
//! byte: spaces after separators, key order kept, no HTML escapes.

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

pub struct Style {
    pub ensure_ascii: bool,
    pub sort_keys: bool,
    /// One level of indentation; None writes a single line.
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
}

/// repr(float): the shortest digits that read back equal, with an exponent
/// below 1e-4 and from 1e16 on.
pub fn float_repr(value: f64) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.into();
    }
    let scientific = format!("{value:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = format!("{value}");
        return if plain.contains('.') {
            plain
        } else {
            plain + ".0"
        };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

pub fn string(text: &str, ensure_ascii: bool, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c if ensure_ascii && !c.is_ascii() => {
                let mut units = [0u16; 2];
                for unit in c.encode_utf16(&mut units) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// As json.dumps: NaN and Infinity are written, though JSON has neither.
fn number(value: &Value) -> Result<String, Error> {
    if value.is_integer() {
        return Ok(value.to_string());
    }
    let float = f64::try_from(value.clone())?;
    Ok(match float_repr(float).as_str() {
        "nan" => "NaN".into(),
        "inf" => "Infinity".into(),
        "-inf" => "-Infinity".into(),
        text => text.to_string(),
    })
}

fn key(value: &Value) -> Result<String, Error> {
    match value.kind() {
        ValueKind::String => Ok(value.as_str().unwrap_or_default().to_string()),
        ValueKind::Bool => Ok(if value.is_true() { "true" } else { "false" }.into()),
        ValueKind::None => Ok("null".into()),
        ValueKind::Number => number(value),
        kind => Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("keys must be str, int, float, bool or None, not {kind}"),
        )),
    }
}

const DEEPEST: usize = 128;

fn new_line(style: &Style, depth: usize, out: &mut String) {
    if let Some(indent) = &style.indent {
        out.push('\n');
        for _ in 0..depth {
            out.push_str(indent);
        }
    }
}

fn write(value: &Value, style: &Style, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > DEEPEST {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            "tojson: nested too deep",
        ));
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&number(value)?),
        ValueKind::String => string(value.as_str().unwrap_or_default(), style.ensure_ascii, out),
        ValueKind::Seq => {
            out.push('[');
            let mut empty = true;
            for item in value.try_iter()? {
                if !empty {
                    out.push_str(&style.item_separator);
                }
                empty = false;
                new_line(style, depth + 1, out);
                write(&item, style, depth + 1, out)?;
            }
            if !empty {
                new_line(style, depth, out);
            }
            out.push(']');
        }
        ValueKind::Map => {
            let mut entries = Vec::new();
            for name in value.try_iter()? {
                entries.push((key(&name)?, value.get_item(&name)?));
            }
            if style.sort_keys {
                entries.sort_by(|a, b| a.0.cmp(&b.0));
            }
            out.push('{');
            let empty = entries.is_empty();
            for (index, (name, item)) in entries.iter().enumerate() {
                if index > 0 {
                    out.push_str(&style.item_separator);
                }
                new_line(style, depth + 1, out);
                string(name, style.ensure_ascii, out);
                out.push_str(&style.key_separator);
                write(item, style, depth + 1, out)?;
            }
            if !empty {
                new_line(style, depth, out);
            }
            out.push('}');
        }
        kind => {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("Object of type {kind} is not JSON serializable"),
            ))
        }
    }
    Ok(())
}

pub fn dumps(value: &Value, style: &Style) -> Result<String, Error> {
    let mut out = String::new();
    write(value, style, 0, &mut out)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::float_repr;

    #[test]
    fn floats_print_as_in_python() {
        for (value, text) in [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e16, "1e+16"),
            (1e15, "1000000000000000.0"),
            (1.5e-5, "1.5e-05"),
            (0.0001, "0.0001"),
            (1e20, "1e+20"),
            (-2.5, "-2.5"),
            (1e-100, "1e-100"),
        ] {
            assert_eq!(float_repr(value), text);
        }
    }
}
