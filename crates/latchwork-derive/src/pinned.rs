//! Accessors that lead from a pinned struct to its pinned fields. The library's `region/pinned.rs` explains why they
//! are sound.

use proc_macro2::TokenStream as Tokens;
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::{Data, DeriveInput, Error, Field, Fields, GenericParam, Lifetime, Result, parse_quote};

/// Whether a field is marked `#[pin]`.
pub(crate) fn is_marked(field: &Field) -> bool {
    field.attrs.iter().any(|attr| attr.path().is_ident("pin"))
}

/// The fields of a struct whose fields have names, some of which are marked.
fn all_fields(input: &DeriveInput) -> Result<Vec<&Field>> {
    let refused = |reason: &str| Err(Error::new_spanned(&input.ident, reason));
    let Data::Struct(data) = &input.data else {
        return refused("only a struct has pinned fields");
    };
    let Fields::Named(fields) = &data.fields else {
        return refused("name the fields: each accessor is called as its field is");
    };
    let fields: Vec<_> = fields.named.iter().collect();
    if !fields.iter().any(|field| is_marked(field)) {
        return refused("mark the fields that are used pinned, such as robust locks, with #[pin]");
    }
    Ok(fields)
}

/// The implementation of `Edit`: a struct that lends all fields.
fn editor(input: &DeriveInput, fields: &[&Field]) -> Tokens {
    let name = &input.ident;
    let editor = format_ident!("__{name}Editor");
    let edit = Lifetime::new("'__edit", name.span());
    let (implementation, arguments, clause) = input.generics.split_for_impl();
    let mut generics = input.generics.clone();
    generics.params.insert(0, parse_quote!(#edit));
    for parameter in generics.params.iter_mut() {
        match parameter {
            GenericParam::Type(parameter) => parameter.default = None,
            GenericParam::Const(parameter) => parameter.default = None,
            GenericParam::Lifetime(_) => {}
        }
    }
    generics
        .make_where_clause()
        .predicates
        .push(parse_quote!(#name #arguments: #edit));
    let parameters = &generics.params;
    let editor_clause = &generics.where_clause;
    let (_, editor_arguments, _) = generics.split_for_impl();
    let mut elided = input.generics.clone();
    elided.params.insert(0, parse_quote!('_));
    let (_, elided_arguments, _) = elided.split_for_impl();
    let (members, lent): (Vec<_>, Vec<_>) = fields
        .iter()
        .map(|field| {
            let (name, ty, vis) = (&field.ident, &field.ty, &field.vis);
            let (ty, lent) = (quote!(&#edit mut #ty), quote!(&mut this.#name));
            if is_marked(field) {
                let pinned = quote!(#name: ::core::pin::Pin::new_unchecked(#lent));
                (quote!(#vis #name: ::core::pin::Pin<#ty>), pinned)
            } else {
                (quote!(#vis #name: #ty), quote!(#name: #lent))
            }
        })
        .unzip();
    quote! {
        #[allow(missing_docs, dead_code, unnameable_types, unreachable_pub, non_camel_case_types, private_interfaces)]
        const _: () = {
            pub struct #editor<#parameters> #editor_clause {
                #(#members,)*
            }

            impl #implementation ::latchwork::region::Edit for #name #arguments #clause {
                type Editor<#edit> = #editor #editor_arguments where Self: #edit;

                #[inline]
                fn edit(self: ::core::pin::Pin<&mut Self>) -> #editor #elided_arguments {
                    // SAFETY: the marked fields move only with the struct; the others are never pinned.
                    unsafe {
                        let this = self.get_unchecked_mut();
                        #editor { #(#lent,)* }
                    }
                }
            }
        };
    }
}

pub(crate) fn fields(input: DeriveInput) -> Result<Tokens> {
    let name = &input.ident;
    let all = all_fields(&input)?;
    let editor = editor(&input, &all);
    let marked: Vec<_> = all.into_iter().filter(|field| is_marked(field)).collect();
    let types: Vec<_> = marked.iter().map(|field| &field.ty).collect();
    let accessors = marked.iter().map(|field| {
        let (name, ty, vis) = (&field.ident, &field.ty, &field.vis);
        let text = format!("The field `{}`, pinned.", quote!(#name));
        let changed_text = format!("The field `{}`, pinned, for changes.", quote!(#name));
        let plain = name.as_ref().map(IdentExt::unraw);
        let name_mut = format_ident!("{}_mut", plain.unwrap_or_else(|| format_ident!("_")));
        quote! {
            #[doc = #text]
            #[must_use]
            #[inline]
            #[allow(dead_code)]
            #vis fn #name(self: ::core::pin::Pin<&Self>) -> ::core::pin::Pin<&#ty> {
                // SAFETY: the field moves only with the struct: see below.
                unsafe { self.map_unchecked(|this| &this.#name) }
            }

            #[doc = #changed_text]
            #[must_use]
            #[inline]
            #[allow(dead_code)]
            #vis fn #name_mut(self: ::core::pin::Pin<&mut Self>) -> ::core::pin::Pin<&mut #ty> {
                // SAFETY: the field moves only with the struct: see below.
                unsafe { self.map_unchecked_mut(|this| &mut this.#name) }
            }
        }
    });
    let (implementation, arguments, clause) = input.generics.split_for_impl();
    let mut generics = input.generics.clone();
    let pin = Lifetime::new("'__pin", name.span());
    generics.params.insert(0, parse_quote!(#pin));
    generics.make_where_clause().predicates.push(parse_quote!(
        ::latchwork::region::PinnedParts<#pin, (#(#types,)*)>: ::core::marker::Unpin
    ));
    let (unpin_implementation, _, unpin_clause) = generics.split_for_impl();
    let bound = format_ident!("ADropCouldMoveAPinnedField");
    Ok(quote! {
        impl #implementation #name #arguments #clause {
            #(#accessors)*
        }

        // Unpin only if the pinned fields are: no other implementation can be added.
        #[allow(private_bounds)]
        impl #unpin_implementation ::core::marker::Unpin for #name #arguments #unpin_clause {}

        // SAFETY: this derive implements it; by the implementation of `Unpin` above, the struct is `Unpin` only if all
        // its pinned fields are.
        unsafe impl #implementation ::latchwork::region::PinsFields for #name #arguments #clause {}

        #editor

        const _: () = {
            // Whatever has a `Drop` has this trait already.
            trait #bound {}
            #[allow(drop_bounds)]
            impl<T: ?Sized + ::core::ops::Drop> #bound for T {}
            impl #implementation #bound for #name #arguments #clause {}
        };
    })
}
