//! Filters of text as jinja2 has them: which arguments may be positional, and
//! what becomes of the last line.

use super::filters::{check_width, invalid, python_str};
use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Environment, Error, Value};
use minijinja_contrib::filters::wordwrap as wrap_by_keywords;

/// Arguments by position or by name, in the order of `names`.
fn bind<const N: usize>(
    args: &[Value],
    kwargs: &Kwargs,
    names: [&str; N],
) -> Result<[Option<Value>; N], Error> {
    if args.len() > N {
        return invalid(format!("at most {N} arguments may be given"));
    }
    let mut out = [const { None }; N];
    for (index, name) in names.iter().enumerate() {
        out[index] = match args.get(index) {
            Some(value) => Some(value.clone()),
            None => kwargs.get::<Option<Value>>(name)?,
        };
    }
    kwargs.assert_all_used()?;
    Ok(out)
}

fn is_true(value: &Option<Value>) -> bool {
    value.as_ref().is_some_and(Value::is_true)
}

fn width_of(value: &Option<Value>, default: usize) -> Result<usize, Error> {
    match value {
        None => Ok(default),
        Some(value) => match value.as_i64() {
            Some(width) => check_width(width.max(0) as usize),
            None => invalid(format!("{} is not a number", value.kind())),
        },
    }
}

fn indent(value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let [width, first, blank] = bind(&args, &kwargs, ["width", "first", "blank"])?;
    let indentation = match width.as_ref().and_then(|w| w.as_str()) {
        Some(text) => text.to_string(),
        None => " ".repeat(width_of(&width, 4)?),
    };
    let text = python_str(value);
    let mut out = String::with_capacity(text.len() + 16);
    for (index, line) in super::methods::split_lines(&(text + "\n"), false)
        .iter()
        .enumerate()
    {
        if index > 0 {
            out.push('\n');
        }
        let indented = if index == 0 {
            is_true(&first)
        } else {
            is_true(&blank) || !line.is_empty()
        };
        if indented {
            out.push_str(&indentation);
        }
        out.push_str(line);
    }
    Ok(Value::from(out))
}

fn truncate(value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let [length, kill_words, end, leeway] =
        bind(&args, &kwargs, ["length", "killwords", "end", "leeway"])?;
    let length = width_of(&length, 255)?;
    let leeway = width_of(&leeway, 5)?;
    let end = end.map_or("...".to_string(), |e| e.to_string());
    let Some(kept) = length.checked_sub(end.chars().count()) else {
        return invalid("truncate: the length is shorter than the end");
    };
    let text = python_str(value);
    if text.chars().count() <= length + leeway {
        return Ok(Value::from(text));
    }
    let mut head: String = text.chars().take(kept).collect();
    if !is_true(&kill_words) {
        if let Some(space) = head.rfind(' ') {
            head.truncate(space);
        }
    }
    Ok(Value::from(head + &end))
}

fn wordwrap(value: &Value, args: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    const NAMES: [&str; 4] = [
        "width",
        "break_long_words",
        "wrapstring",
        "break_on_hyphens",
    ];
    let bound = bind(&args, &kwargs, NAMES)?;
    let given = NAMES.into_iter().zip(bound);
    let kwargs: Kwargs = given.filter_map(|(n, v)| Some((n, v?))).collect();
    wrap_by_keywords(value, kwargs)
}

/// As markupsafe spells it.
fn escape(value: &Value) -> Value {
    if value.is_safe() {
        return value.clone();
    }
    let text = python_str(value);
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    Value::from_safe_string(out)
}

/// In a query a space is a plus and a slash is quoted too.
fn urlencode(value: &Value) -> Result<Value, Error> {
    if value.kind() != ValueKind::Map {
        return Ok(Value::from(minijinja::filters::urlencode(value)?));
    }
    let quote = |part: Value| -> Result<String, Error> {
        let quoted = minijinja::filters::urlencode(&Value::from(python_str(&part)))?;
        Ok(quoted.replace("%20", "+").replace('/', "%2F"))
    };
    let mut pairs = Vec::new();
    for key in value.try_iter()? {
        let item = value.get_item(&key)?;
        pairs.push(format!("{}={}", quote(key)?, quote(item)?));
    }
    Ok(Value::from(pairs.join("&")))
}

fn cycler(items: Rest<Value>) -> Result<Value, Error> {
    minijinja_contrib::globals::cycler(items.0)
}

/// What has a length and items: in Python text and mappings too.
fn is_sequence(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::String | ValueKind::Map | ValueKind::Seq
    ) || (value.kind() == ValueKind::Iterable && value.len().is_some())
}

pub fn install(env: &mut Environment<'static>) {
    env.add_filter("indent", indent);
    env.add_filter("truncate", truncate);
    env.add_filter("wordwrap", wordwrap);
    env.add_filter("escape", escape);
    env.add_filter("e", escape);
    env.add_filter("forceescape", |value: &Value| {
        escape(&Value::from(value.to_string()))
    });
    env.add_filter("urlencode", urlencode);
    env.add_function("cycler", cycler);
    env.add_test("sequence", is_sequence);
}
