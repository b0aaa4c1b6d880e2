//! Filters, tests and functions where minijinja's differ from jinja2's.

use super::dumps::{dumps, float_repr, Style};
use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State, Value};

/// No filter may make a text longer than this from a number in a template.
pub const WIDEST: usize = 1 << 16;

pub fn invalid<T>(message: impl Into<String>) -> Result<T, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.into()))
}

pub fn check_width(width: usize) -> Result<usize, Error> {
    if width > WIDEST {
        return invalid(format!("width {width} is over the limit of {WIDEST}"));
    }
    Ok(width)
}

fn tojson(state: &State, value: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    if value.is_undefined() {
        return invalid("Object of type Undefined is not JSON serializable");
    }
    let indent = match kwargs.get::<Option<Value>>("indent")? {
        None => None,
        Some(v) if v.is_none() => None,
        Some(v) => match (v.as_str(), v.as_i64()) {
            (Some(text), _) => Some(text.to_string()),
            (_, Some(n)) => Some(" ".repeat(check_width(n.max(0) as usize)?)),
            _ => return invalid("tojson: indent must be a number or a string"),
        },
    };
    let separators = match kwargs.get::<Option<Value>>("separators")? {
        Some(v) if !v.is_none() => Some((
            v.get_item_by_index(0)?.to_string(),
            v.get_item_by_index(1)?.to_string(),
        )),
        _ => None,
    };
    let (item_separator, key_separator) = separators.unwrap_or_else(|| {
        let item = if indent.is_some() { "," } else { ", " };
        (item.into(), ": ".into())
    });
    let style = Style {
        ensure_ascii: kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sort_keys: kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        indent,
        item_separator,
        key_separator,
    };
    kwargs.assert_all_used()?;
    let text = dumps(value, &style)?;
    state.consume_fuel(text.len() as u64 / 64)?;
    Ok(Value::from(text))
}

fn default(value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let fallback = match args.first() {
        Some(given) => given.clone(),
        None => kwargs
            .get::<Option<Value>>("default_value")?
            .unwrap_or_else(|| Value::from("")),
    };
    let lax = match args.get(1) {
        Some(given) => given.is_true(),
        None => kwargs
            .get::<Option<Value>>("boolean")?
            .is_some_and(|v| v.is_true()),
    };
    kwargs.assert_all_used()?;
    let replace = value.is_undefined() || (lax && !value.is_true());
    Ok(if replace { fallback } else { value.clone() })
}

/// int(value), or the default (0) where Python's int() raises.
fn int(value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let fallback = match args.first() {
        Some(given) => given.clone(),
        None => kwargs
            .get::<Option<Value>>("default")?
            .unwrap_or_else(|| Value::from(0)),
    };
    let base = match args.get(1).and_then(|v| v.as_i64()) {
        Some(base) => base,
        None => kwargs.get::<Option<i64>>("base")?.unwrap_or(10),
    };
    kwargs.assert_all_used()?;
    if !(2..=36).contains(&base) {
        return invalid("int: base must be 2 to 36");
    }
    Ok(match value.kind() {
        ValueKind::Bool => Value::from(i64::from(value.is_true())),
        ValueKind::Number if value.is_integer() => value.clone(),
        ValueKind::Number => {
            let float = f64::try_from(value.clone())?;
            if float.is_finite() {
                Value::from(float.trunc() as i128)
            } else {
                fallback
            }
        }
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default().trim().replace('_', "");
            let digits = match base {
                16 => text.trim_start_matches("0x").trim_start_matches("0X"),
                8 => text.trim_start_matches("0o"),
                2 => text.trim_start_matches("0b"),
                _ => &text,
            };
            match i128::from_str_radix(digits, base as u32) {
                Ok(parsed) => Value::from(parsed),
                // jinja2 then tries int(float(text)).
                Err(_) => match text.parse::<f64>() {
                    Ok(float) if float.is_finite() => Value::from(float.trunc() as i128),
                    _ => fallback,
                },
            }
        }
        _ => fallback,
    })
}

fn float(value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let fallback = match args.first() {
        Some(given) => given.clone(),
        None => kwargs
            .get::<Option<Value>>("default")?
            .unwrap_or_else(|| Value::from(0.0)),
    };
    kwargs.assert_all_used()?;
    Ok(match value.kind() {
        ValueKind::Bool => Value::from(f64::from(u8::from(value.is_true()))),
        ValueKind::Number => Value::from(f64::try_from(value.clone())?),
        ValueKind::String => value
            .as_str()
            .unwrap_or_default()
            .trim()
            .replace('_', "")
            .parse::<f64>()
            .map_or(fallback, Value::from),
        _ => fallback,
    })
}

/// str(value), with Python's spelling of floats.
fn string(value: &Value) -> Result<Value, Error> {
    Ok(Value::from(python_str(value)))
}

pub fn python_str(value: &Value) -> String {
    if value.kind() == ValueKind::Number && !value.is_integer() {
        if let Ok(float) = f64::try_from(value.clone()) {
            return float_repr(float);
        }
    }
    value.to_string()
}

fn center(value: &Value, width: Option<usize>) -> Result<Value, Error> {
    super::methods::pad(
        &python_str(value),
        check_width(width.unwrap_or(80))?,
        ' ',
        super::methods::Side::Both,
    )
}

/// Python's None is not iterable; minijinja iterates it as nothing.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

fn is_callable(value: &Value) -> bool {
    value
        .as_object()
        .is_some_and(|o| format!("{o:?}").contains("function"))
}

/// dict(mapping), dict([(k, v), ...]), dict(a=1), as in Python.
fn dict(args: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    if args.len() > 1 {
        return invalid("dict expected at most 1 argument");
    }
    let first = args.first().cloned();
    let mut pairs = Vec::new();
    if let Some(first) = first {
        if first.kind() == ValueKind::Map {
            for key in first.try_iter()? {
                let item = first.get_item(&key)?;
                pairs.push((key, item));
            }
        } else {
            for pair in first.try_iter()? {
                pairs.push((pair.get_item_by_index(0)?, pair.get_item_by_index(1)?));
            }
        }
    }
    for name in kwargs.args() {
        pairs.push((Value::from(name), kwargs.get(name)?));
    }
    Ok(Value::from_pairs(pairs))
}

pub fn install(env: &mut Environment<'static>) {
    minijinja_contrib::add_to_environment(env);
    env.remove_global("debug");
    super::text_filters::install(env);
    env.add_filter("tojson", tojson);
    env.add_filter("default", default);
    env.add_filter("d", default);
    env.add_filter("int", int);
    env.add_filter("float", float);
    env.add_filter("string", string);
    env.add_filter("center", center);
    env.add_test("iterable", is_iterable);
    env.add_test("callable", is_callable);
    env.add_function("dict", dict);
}
