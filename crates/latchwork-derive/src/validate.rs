//! The derive of `Validate`: each field is validated in its place, and an enum's tag before its fields.

use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::{Data, DataEnum, DeriveInput, Error, Ident, Result, parse_quote};

/// The tag of an enum, if its representation is an integer.
pub(crate) struct Tag {
    pub(crate) integer: Option<Ident>,
    /// The layout of the fields is that of C.
    pub(crate) is_c: bool,
    pub(crate) is_packed: bool,
    /// The value for each variant, as an `i128`.
    pub(crate) values: Vec<Tokens>,
}

pub(crate) fn validate(mut input: DeriveInput, tag: &Tag) -> Result<Tokens> {
    if tag.is_packed {
        return Err(Error::new_spanned(
            &input.ident,
            "a packed type cannot be validated: its fields are not aligned",
        ));
    }
    let body = match &input.data {
        Data::Struct(data) => {
            let members: Vec<_> = data.fields.members().collect();
            let types: Vec<_> = data.fields.iter().map(|field| &field.ty).collect();
            quote! {
                #(
                    // SAFETY: a field of the place.
                    unsafe {
                        let part = ::core::ptr::NonNull::new_unchecked(&raw mut (*place.as_ptr()).#members);
                        <#types as ::latchwork::region::Validate>::validate(part, region)?;
                    }
                )*
                ::core::result::Result::Ok(())
            }
        }
        Data::Enum(data) => of_enum(data, &input.ident, tag)?,
        Data::Union(data) => {
            return Err(Error::new(
                data.union_token.span,
                "a union cannot be validated: nothing says which field is valid",
            ));
        }
    };
    let types: Vec<_> = match &input.data {
        Data::Enum(data) => (data.variants.iter())
            .flat_map(|variant| variant.fields.iter().map(|field| field.ty.clone()))
            .collect(),
        Data::Struct(data) => data.fields.iter().map(|field| field.ty.clone()).collect(),
        Data::Union(_) => Vec::new(),
    };
    let name = &input.ident;
    let (_, arguments, _) = input.generics.split_for_impl();
    let this = quote!(#name #arguments);
    let clause = input.generics.make_where_clause();
    clause
        .predicates
        .push(parse_quote!(#this: ::latchwork::region::Shareable));
    for ty in types {
        clause
            .predicates
            .push(parse_quote!(#ty: ::latchwork::region::Validate));
    }
    let name = &input.ident;
    let (implementation, arguments, clause) = input.generics.split_for_impl();
    Ok(quote! {
        // SAFETY: the tag, if there is one, and every field is validated.
        unsafe impl #implementation ::latchwork::region::Validate for #name #arguments #clause {
            unsafe fn validate(
                place: ::core::ptr::NonNull<Self>,
                region: &mut ::latchwork::region::Validator<'_>,
            ) -> ::core::result::Result<(), ::latchwork::region::Unsound> {
                let _ = &region;
                #body
            }
        }
    })
}

/// With an integer alone as its representation, an enum is a union of `repr(C)` structs, each of which begins with the tag.
fn of_enum(data: &DataEnum, name: &Ident, tag: &Tag) -> Result<Tokens> {
    let has_fields = data
        .variants
        .iter()
        .any(|variant| !variant.fields.is_empty());
    let Some(integer) = &tag.integer else {
        return Err(Error::new_spanned(
            name,
            "to be validated, an enum needs an integer such as #[repr(u32)]",
        ));
    };
    if has_fields && tag.is_c {
        return Err(Error::new_spanned(
            name,
            "to be validated, an enum with fields needs #[repr(u32)], or another integer, without C",
        ));
    }
    let tags = &tag.values;
    let bodies = data.variants.iter().map(|variant| {
        let types = variant.fields.iter().map(|field| &field.ty);
        quote! {
            let layout = ::core::alloc::Layout::new::<#integer>();
            #(
                let ::core::result::Result::Ok((layout, offset)) =
                    layout.extend(::core::alloc::Layout::new::<#types>()) else {
                    return ::core::result::Result::Err(region.unsound(place, "it is too large"));
                };
                // SAFETY: a field of the variant that the tag names.
                unsafe {
                    let part = place.byte_add(offset).cast::<#types>();
                    <#types as ::latchwork::region::Validate>::validate(part, region)?;
                }
            )*
            let _ = layout;
            return ::core::result::Result::Ok(());
        }
    });
    Ok(quote! {
        // SAFETY: the tag comes first.
        let tag = unsafe { place.cast::<#integer>().read() } as i128;
        #(if tag == #tags { #bodies })*
        ::core::result::Result::Err(region.unsound(place, "an enum is no variant of its type"))
    })
}
