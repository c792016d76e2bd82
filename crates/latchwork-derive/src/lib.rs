//! The derive macros of [latchwork](https://docs.rs/latchwork): `Shareable`, `TornSafe`, `PinnedFields` and `Validate`.
//!
//! Use them through `latchwork::region`, which re-exports them beside their traits. The generated code is `unsafe`
//! without an `allow`: the lint `unsafe_code` does not apply to code from macros of other crates, and a crate that
//! forbids unsafe code must be able to use them.

mod pinned;
mod validate;

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::{
    Data, DataEnum, DeriveInput, Error, Field, Fields, Generics, Ident, Lifetime, LitStr, Member,
    Result, TypeParamBound, parse_quote,
};

/// Derives `latchwork::region::Shareable` for a `repr(C)` or `repr(transparent)` struct, or an enum with a fixed
/// representation, all of whose fields are `Shareable`.
///
/// The fingerprint covers names, representation, size and alignment, the fields' names, fingerprints and (in a
/// struct) offsets, and the variants' names and discriminants. It also covers the package and its major version (the
/// minor version, too, if the major one is 0), the module, and the parameters: two types with the same layout may
/// make different promises. So a type parameter must be `Shareable`.
///
/// The type is also `latchwork::region::Relocatable` if all its fields are.
///
/// Programs that share a type should take it from one crate. If instead each program includes the same source file,
/// or if a parameter is not `Shareable`, give the type a name, which replaces the package, the module, its own name
/// and its type parameters:
///
/// ```ignore
/// #[derive(Shareable)]
/// #[shareable(unsafe(name = "org.example.Index"))]
/// #[repr(C)]
/// struct Index { /* … */ }
/// ```
///
/// # Safety of a name
/// A value of one type with this name and layout is a valid value of every other type with this name and layout, in
/// everything that the modules of both rely on. The name should contain a domain, and a number that changes when the
/// type's meaning changes.
#[proc_macro_derive(Shareable, attributes(shareable))]
pub fn derive_shareable(input: TokenStream) -> TokenStream {
    expand(input, shareable)
}

/// Derives `latchwork::region::TornSafe` for a struct all of whose fields are `TornSafe`.
///
/// A field that is not `Unpin`, such as a container, must be marked `#[pin]`, and the struct must derive `PinnedFields`,
/// too: safe code can then change the container in its place, but not copy it to another place.
#[proc_macro_derive(TornSafe, attributes(pin))]
pub fn derive_torn_safe(input: TokenStream) -> TokenStream {
    expand(input, torn_safe)
}

/// Derives `latchwork::region::Validate` for a struct all of whose fields are `Validate`, and for such an enum whose
/// representation is an integer: `#[repr(u8)]`. The type must be `Shareable`.
#[proc_macro_derive(Validate)]
pub fn derive_validate(input: TokenStream) -> TokenStream {
    expand(input, validate)
}

/// Generates a method for each field that is marked `#[pin]`, with the field's name and visibility, which leads from
/// the pinned struct to the pinned field: how to use a robust lock that is a field.
///
/// For a field that is itself a struct with such fields, use `bank.inner().log()`; for a field that is an array of
/// locks, `latchwork::region::each_pinned(bank.locks())`.
///
/// The macro works for any struct with named fields, in a region or not. The struct is `Unpin` only if its pinned
/// fields are, which other code cannot change, and it cannot have a `Drop` of its own: either could move a lock that
/// is held.
///
/// A second method for each such field, `name_mut`, leads from the pinned struct to the field for changes. The macro
/// also implements `latchwork::region::Edit`, which gives access to all fields at a time: `guard.edit()` of a robust
/// lock's guard returns a struct with the same fields, `Pin<&mut F>` for those that are marked, `&mut F` for the others.
#[proc_macro_derive(PinnedFields, attributes(pin))]
pub fn derive_pinned_fields(input: TokenStream) -> TokenStream {
    expand(input, pinned::fields)
}

/// What a macro makes of its input, or the error that it reports.
fn expand(input: TokenStream, derive: fn(DeriveInput) -> Result<Tokens>) -> TokenStream {
    syn::parse(input)
        .and_then(derive)
        .unwrap_or_else(Error::into_compile_error)
        .into()
}

/// The contents of `#[repr(…)]`.
#[derive(Default)]
struct Representation {
    /// Its words, for the fingerprint.
    text: String,
    /// Whether two builds with this representation can read each other's memory.
    is_fixed: bool,
    /// The type of an enum's discriminants, if it is given.
    integer: Option<Ident>,
}

impl Representation {
    fn of(input: &DeriveInput) -> Result<Self> {
        let mut this = Self::default();
        for attribute in &input.attrs {
            if attribute.path().is_ident("repr") {
                attribute.parse_nested_meta(|meta| {
                    let word = meta.path.require_ident()?;
                    match word.to_string().as_str() {
                        "C" | "transparent" => this.is_fixed = true,
                        "u8" | "u16" | "u32" | "u64" | "i8" | "i16" | "i32" | "i64" => {
                            this.is_fixed = true;
                            this.integer = Some(word.clone());
                        }
                        _ => {}
                    }
                    this.text += &format!(" {word}");
                    // `align(8)` and `packed(2)` carry an argument.
                    if meta.input.peek(syn::token::Paren) {
                        let content;
                        syn::parenthesized!(content in meta.input);
                        this.text += &format!("({})", content.parse::<syn::LitInt>()?);
                    }
                    Ok(())
                })?;
            }
        }
        Ok(this)
    }
}

/// The name in `#[shareable(unsafe(name = "…"))]`.
fn given_name(input: &DeriveInput) -> Result<Option<LitStr>> {
    let mut name = None;
    for attribute in &input.attrs {
        if !attribute.path().is_ident("shareable") {
            continue;
        }
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("unsafe") {
                return Err(meta.error(
                    "expected `unsafe(name = \"…\")`: a name is a promise that nobody checks",
                ));
            }
            meta.parse_nested_meta(|meta| {
                if !meta.path.is_ident("name") || name.is_some() {
                    return Err(meta.error("expected one `name = \"…\"`"));
                }
                name = Some(meta.value()?.parse()?);
                Ok(())
            })
        })?;
    }
    Ok(name)
}

/// The value of each variant's discriminant, as an `i128`.
fn discriminants(data: &DataEnum, integer: Option<Ident>) -> Vec<Tokens> {
    let integer = integer.unwrap_or(parse_quote!(isize));
    let mut named = quote!(0);
    let mut after = 0i128;
    let value = |variant: &syn::Variant| {
        if let Some((_, value)) = &variant.discriminant {
            named = quote!(#value);
            after = 0;
        }
        let value = quote!({ let named: #integer = #named; named as i128 + #after });
        after += 1;
        value
    };
    data.variants.iter().map(value).collect()
}

/// The fields of a struct, as `offset_of!` names them. It does not support the fields of an enum, whose offsets
/// follow from the representation.
fn members(data: &Data) -> Vec<Member> {
    match data {
        Data::Struct(data) => data.fields.members().collect(),
        _ => Vec::new(),
    }
}

fn fields_of(data: &Data) -> Result<Vec<(&Field, String)>> {
    fn named<'a>(prefix: &str, fields: &'a Fields) -> Vec<(&'a Field, String)> {
        let names = (fields.members()).map(|member| format!("{prefix}{}", quote!(#member)));
        fields.iter().zip(names).collect()
    }
    match data {
        Data::Struct(data) => Ok(named("", &data.fields)),
        Data::Enum(data) => Ok((data.variants.iter())
            .flat_map(|variant| named(&format!("{}.", variant.ident), &variant.fields))
            .collect()),
        Data::Union(data) => Err(Error::new(
            data.union_token.span,
            "a union cannot be shared: nothing says which field is valid",
        )),
    }
}

fn shareable(mut input: DeriveInput) -> Result<Tokens> {
    let representation = Representation::of(&input)?;
    if !representation.is_fixed {
        return Err(Error::new_spanned(
            &input.ident,
            "a Shareable type needs a fixed layout: add #[repr(C)], #[repr(transparent)], or for an enum an integer such as #[repr(u32)]",
        ));
    }
    let fields = fields_of(&input.data)?;
    let (variants, discriminants) = match &input.data {
        Data::Enum(data) => (
            joined(data.variants.iter().map(|variant| &variant.ident)),
            discriminants(data, representation.integer),
        ),
        _ => (String::new(), Vec::new()),
    };
    let members = members(&input.data);
    let given = given_name(&input)?;
    let constants: Vec<Ident> = (input.generics.const_params())
        .map(|parameter| parameter.ident.clone())
        .collect();
    let mut parameters: Vec<Ident> = (input.generics.type_params())
        .map(|parameter| parameter.ident.clone())
        .collect();
    let given_generics = input.generics.clone();
    let clause = input.generics.make_where_clause();
    for parameter in &parameters {
        let bound: TypeParamBound = match given {
            Some(_) => parse_quote!('static),
            None => parse_quote!(::latchwork::region::Shareable),
        };
        clause.predicates.push(parse_quote!(#parameter: #bound));
    }
    if given.is_some() {
        // The name replaces the type parameters.
        parameters.clear();
    }
    for (field, _) in &fields {
        let ty = &field.ty;
        clause
            .predicates
            .push(parse_quote!(#ty: ::latchwork::region::Shareable));
    }
    let relocatable = relocatable(&input, &given_generics, &fields, &members);
    let name = &input.ident;
    let (implementation, arguments, clause) = input.generics.split_for_impl();
    let path = match &given {
        Some(given) => {
            quote!(::latchwork::region::type_path([::core::option::Option::None; 4], "", #given))
        }
        // Expanded in the crate of the type. A package's library and its program may have the same name.
        None => {
            let name = name.to_string();
            quote!(::latchwork::region::type_path(
                [
                    ::core::option_env!("CARGO_PKG_NAME"),
                    ::core::option_env!("CARGO_PKG_VERSION_MAJOR"),
                    ::core::option_env!("CARGO_PKG_VERSION_MINOR"),
                    ::core::option_env!("CARGO_BIN_NAME"),
                ],
                ::core::module_path!(),
                #name,
            ))
        }
    };
    let names = joined(fields.iter().map(|(_, name)| name));
    let label = format!("[{}]{{{variants};{names}}}", representation.text);
    let types: Vec<_> = fields.iter().map(|(field, _)| &field.ty).collect();
    Ok(quote! {
        // SAFETY: every field is Shareable, and the layout is fixed.
        unsafe impl #implementation ::latchwork::region::Shareable for #name #arguments #clause {
            const FINGERPRINT: u64 = ::latchwork::region::fingerprint(
                #label,
                ::core::mem::size_of::<Self>(),
                ::core::mem::align_of::<Self>(),
                &[
                    #path,
                    #(#constants as i128 as u64, (#constants as i128 >> 64) as u64,)*
                    #(<#parameters as ::latchwork::region::Shareable>::FINGERPRINT,)*
                    #(<#types as ::latchwork::region::Shareable>::FINGERPRINT,)*
                    #(::core::mem::offset_of!(Self, #members) as u64,)*
                    #(#discriminants as u64,)*
                ],
            );
            const NAMES_THREADS: bool =
                false #(|| <#types as ::latchwork::region::Shareable>::NAMES_THREADS)*;
        }

        #relocatable
    })
}

fn validate(input: DeriveInput) -> Result<Tokens> {
    let representation = Representation::of(&input)?;
    let integer = representation.integer;
    let tag = validate::Tag {
        is_c: representation.text.contains(" C"),
        is_packed: representation.text.contains(" packed"),
        values: match &input.data {
            Data::Enum(data) => discriminants(data, integer.clone()),
            _ => Vec::new(),
        },
        integer,
    };
    validate::validate(input, &tag)
}

fn joined(names: impl Iterator<Item = impl ToString>) -> String {
    let names: Vec<_> = names.map(|name| name.to_string()).collect();
    names.join(",")
}

/// The implementation of `Relocatable`, which has effect if all fields are `Relocatable`.
///
/// `members`: a struct's, whose fields are settled; those of an enum are not.
fn relocatable(
    input: &DeriveInput,
    generics: &Generics,
    fields: &[(&Field, String)],
    members: &[Member],
) -> Tokens {
    let name = &input.ident;
    let (_, arguments, _) = generics.split_for_impl();
    let mut generics = generics.clone();
    let part = Lifetime::new("'__part", name.span());
    generics.params.insert(0, parse_quote!(#part));
    let clause = generics.make_where_clause();
    for (field, _) in fields {
        let ty = &field.ty;
        clause.predicates.push(parse_quote!(
            ::latchwork::region::PinnedParts<#part, #ty>: ::latchwork::region::Relocatable
        ));
    }
    let (implementation, _, clause) = generics.split_for_impl();
    let parts: Vec<_> = (members.iter().zip(fields))
        .map(|(_, (field, _))| {
            let ty = &field.ty;
            quote!(<::latchwork::region::PinnedParts<#part, #ty> as ::latchwork::region::Relocatable>)
        })
        .collect();
    quote! {
        // SAFETY: every field is Relocatable.
        #[allow(private_bounds)]
        unsafe impl #implementation ::latchwork::region::Relocatable for #name #arguments #clause {
            const SETTLES: bool = false #(|| #parts::SETTLES)*;
            unsafe fn settle(_place: *mut Self) {
                #(
                    if #parts::SETTLES {
                        // SAFETY: a field of the place.
                        unsafe {
                            let part = ::core::ptr::NonNull::new_unchecked(&raw mut (*_place).#members);
                            #parts::settle_part(part.cast());
                        }
                    }
                )*
            }
        }
    }
}

fn torn_safe(mut input: DeriveInput) -> Result<Tokens> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(
            &input.ident,
            "only a struct can be TornSafe: a torn enum may have the tag of one variant and the data of another",
        ));
    };
    let name = &input.ident;
    let (_, arguments, _) = input.generics.split_for_impl();
    let this = quote!(#name #arguments);
    let clause = input.generics.make_where_clause();
    let mut require = |bound: Tokens| clause.predicates.push(parse_quote!(#bound));
    for field in &data.fields {
        let ty = &field.ty;
        require(quote!(#ty: ::latchwork::region::TornSafe));
        if !pinned::is_marked(field) {
            // Otherwise safe code could copy the field, or make the struct `Unpin` and copy the struct.
            require(quote!(#ty: ::latchwork::region::NoContainer));
        }
    }
    if data.fields.iter().any(pinned::is_marked) {
        require(quote!(#this: ::latchwork::region::PinsFields));
    }
    let name = &input.ident;
    let (implementation, arguments, clause) = input.generics.split_for_impl();
    Ok(quote! {
        // SAFETY: every field is TornSafe, and no field's validity depends on another's. A field that is not `Unpin` is
        // pinned structurally.
        unsafe impl #implementation ::latchwork::region::TornSafe for #name #arguments #clause {}
    })
}
